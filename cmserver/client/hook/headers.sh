# shellcheck shell=sh
# The headers of calls that an agent makes itself, to the MCP server: part of `hook`, which reads this file for `headers`.

# json_bytes TEXT: as a string of JSON in `text`, each byte a character of its own. A header is made of bytes, and agents refuse
# characters that are none.
json_bytes() {
    case $1 in
        *[!\ -~]* | *[\"\\]*)
            text=''
            for byte in $(printf '%s' "$1" | od -An -v -tx1); do
                text=$text\\u00$byte
            done
            text=\"$text\"
            ;;
        *) text=\"$1\" ;;
    esac
}

# Claude Code may run this in the folder of the plugin, or in its own, and does not say then where it works: no project is named.
headers() {
    line=''
    [ ! -r authorization ] || IFS= read -r line <authorization
    case $line in
        'Authorization: '*) json_bytes "${line#Authorization: }" ;;
        *) exit 0 ;;
    esac
    authorization=$text
    if [ -z "${CLAUDE_PROJECT_DIR:-}" ]; then
        CLAUDE_PROJECT_DIR=$was
        [ "$was" != "${CLAUDE_PLUGIN_ROOT:-}" ] && [ "$was" != "${CLAUDE_CONFIG_DIR:-${HOME:-}/.claude}" ] || CLAUDE_PROJECT_DIR=''
    fi
    value='' private=''
    # shellcheck disable=SC2154  # `hook` has set it
    case $CLAUDE_PROJECT_DIR in
        /?* | [A-Za-z]:[/\\]*)
            if [ -d "$CLAUDE_PROJECT_DIR" ]; then
                folder_variable=CLAUDE_PROJECT_DIR
                find_start
                find_project
                value=''
                is_excluded || { find_called && header X-Cmserver-Project "$called"; }
            fi
            ;;
    esac
    hidden=''
    ! is_private || hidden=', "X-Cmserver-Private": "1"'
    text=''
    [ -z "$value" ] || json_bytes "$value"
    print_line "{\"Authorization\": $authorization${text:+, \"X-Cmserver-Project\": $text}$hidden}"
}
