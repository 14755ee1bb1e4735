# shellcheck shell=sh
# Which project a folder is: part of `hook`, which reads this file. Built-ins only, but for the start of a session.

# left TEXT, right TEXT: the text without blanks there, as `text`.
left() {
    text=${1#"${1%%[![:space:]]*}"}
}

right() {
    text=${1%"${1##*[![:space:]]}"}
}

# is_file PATH: a folder may hold links to devices and pipes, which have no end, or take what the agent says.
is_file() {
    [ -f "$1" ] && [ -r "$1" ]
}

# The first project and the first word on `enabled` on the way up count.
read_toml() {
    said_enabled=''
    while IFS= read -r line || [ -n "$line" ]; do
        left "$line"
        case $text in
            \[*) break ;;
            project[" $tab="]*) word=project ;;
            enabled[" $tab="]*) word=enabled ;;
            *) continue ;;
        esac
        left "${text#"$word"}"
        case $text in
            =*) left "${text#=}" ;;
            *) continue ;;
        esac
        if [ "$word" = enabled ]; then
            case $text in
                true*) said_enabled=yes ;;
                false*) said_enabled=no ;;
            esac
        elif [ -z "$named$kind" ]; then
            case $text in
                \"*) text=${text#?} && toml_string ;;
                \'*) text=${text#?} && named=${text%%\'*} ;;
            esac
            [ -z "$named" ] || root=${here:-/}
        fi
    done <"$here/.cmserver.toml"
    [ -n "$enabled" ] || enabled=$said_enabled
}

toml_string() {
    while [ -n "$text" ]; do
        case $text in
            \"*) break ;;
            \\[\"\\]*) text=${text#?} ;;
        esac
        named=$named${text%"${text#?}"}
        text=${text#?}
    done
}

# The value of a line of git's config, as `value`: quotes, escapes, comments, and lines that go on.
git_value() {
    left "$1"
    case $text in
        *[\"\\\#\;]*) ;;
        *) right "$text" && value=$text && return ;;
    esac
    value='' quoted='' rest=$text
    while [ -n "$rest" ]; do
        char=${rest%"${rest#?}"}
        rest=${rest#?}
        case $char in
            \") if [ -n "$quoted" ]; then quoted=''; else quoted=yes; fi ;;
            \\)
                case $rest in
                    '' | [[:space:]]) # the line goes on in the next
                        IFS= read -r rest || [ -n "$rest" ] || break
                        continue
                        ;;
                esac
                char=${rest%"${rest#?}"}
                rest=${rest#?}
                case $char in
                    n) char=$nl ;;
                    t) char=$tab ;;
                esac
                value=$value$char
                ;;
            [\#\;])
                [ -n "$quoted" ] || break
                value=$value$char
                ;;
            *) value=$value$char ;;
        esac
    done
    right "$value" && value=$text
}

# The url of origin, as `remote`. What includes and insteadOf say is not asked.
git_remote() {
    is_file "$1" || return 0
    is_origin=''
    while IFS= read -r line || [ -n "$line" ]; do
        left "$line"
        line=$text
        case $line in
            \[*)
                line=${line#?}
                section=${line%%[!A-Za-z0-9.-]*}
                left "${line#"$section"}"
                is_origin=''
                case $section$text in
                    [Rr][Ee][Mm][Oo][Tt][Ee]\"origin\"\]*) is_origin=yes ;;
                    [Rr][Ee][Mm][Oo][Tt][Ee].[Oo][Rr][Ii][Gg][Ii][Nn]\]*) is_origin=yes ;;
                    *) continue ;;
                esac
                left "${text#*]}"
                line=$text
                ;;
        esac
        [ -n "$is_origin" ] || continue
        case $line in
            [Uu][Rr][Ll][[:space:]=]*) left "${line#???}" ;;
            *) continue ;;
        esac
        case $text in
            =*) git_value "${text#=}" && remote=$value && return ;;
        esac
    done <"$1"
}

# The default path of Mercurial, as `remote`.
hg_remote() {
    is_file "$1" || return 0
    section=''
    while IFS= read -r line || [ -n "$line" ]; do
        right "$line"
        case $text in
            \[*) section=$text && continue ;;
            default[[:space:]=]*) left "${text#default}" ;;
            *) continue ;;
        esac
        case $section$text in
            '[paths]='*) left "${text#=}" && remote=$text && return ;;
        esac
    done <"$1"
}

# Without who may enter, and without what is only a place relative to this folder.
clean_remote() {
    case $remote in
        *://*)
            scheme=${remote%%://*}:// rest=${remote#*://}
            rest=${rest%%[?#]*}
            case ${rest%%/*} in
                *@*) host=${rest%%/*} && rest=${host##*@}${rest#"$host"} ;;
                *:*[!0-9]*)
                    case $rest in
                        \[*) ;;
                        *@*) rest=${rest##*@} ;; # a password with a slash in it
                    esac
                    ;;
            esac
            remote=$scheme$rest
            ;;
        /*) ;;
        *)
            case ${remote%%/*} in
                *:*@*) remote=${remote#*@} ;;
                *:*) ;;
                *) remote='' ;;
            esac
            ;;
    esac
}

# git_folders: of the work tree `top`, its own folder, the one that its work trees share, and the main one of them.
git_folders() {
    git=$top/.git common=$top/.git main=$top
    [ ! -d "$git" ] || return 0
    IFS= read -r line <"$git" || [ -n "$line" ] || return 0
    right "${line#gitdir:}"
    left "$text"
    case $text in
        /*) git=$text ;;
        *) git=$top/$text ;;
    esac
    common=$git
    if is_file "$git/commondir"; then
        IFS= read -r line <"$git/commondir" || [ -n "$line" ] || return 0
        right "$line"
        case $text in
            /*) common=$text ;;
            *) common=$git/$text ;;
        esac
    else
        case $git in
            */.git/worktrees/*) common=${git%/worktrees/*} ;; # in a container, where only the work tree is
            *) return 0 ;;
        esac
    fi
    cd -P -- "$common" && common=$PWD
    main=$common
    case $main in
        */.git) main=${main%/.git} ;;
    esac
    main=${main:-/}
}

# walk FOLDER: sets `root`, `named`, `remote`, `branch`, `top` (the work tree, where there is one), `enabled`.
walk() {
    root='' named='' kind='' enabled='' remote='' branch='' top='' main=''
    here=${1%/}
    while :; do
        ! is_file "$here/.cmserver.toml" || read_toml
        if [ -n "$kind" ]; then
            :
        elif [ -f "$here/.git" ] || [ -f "$here/.git/HEAD" ] || [ -f "$here/.git/config" ]; then
            kind=git top=$here
            git_folders
        elif [ -d "$here/.hg" ]; then
            kind=hg main=$here
            hg_remote "$here/.hg/hgrc"
        elif [ -d "$here/.svn" ]; then
            kind=svn main=$here
        elif [ -f "$here/HEAD" ] && [ -d "$here/objects" ] && [ -d "$here/refs" ] && [ "${here##*/}" != .git ]; then
            kind=git git=$here common=$here main=$here # a bare one
        fi
        [ -n "$here" ] || break
        here=${here%/*}
    done
    if [ "$kind" = git ]; then
        git_remote "$common/config"
        line=''
        ! is_file "$git/HEAD" || IFS= read -r line <"$git/HEAD"
        case $line in
            'ref: refs/heads/.invalid') ;; # HEAD is in a reftable
            'ref: refs/heads/'*) right "${line#ref: refs/heads/}" && branch=$text ;;
        esac
        if [ -z "$named$enabled" ] && [ "$main" != "${top:-$main}" ] && is_file "$main/.cmserver.toml"; then
            here=${main%/} kind=''
            read_toml
            kind=git
        fi
    fi
    [ -n "$root" ] || root=${main:-/}
    [ -n "$kind$named" ] || root=$1
    clean_remote
}

find_project() {
    start=$was
    case $agent in
        codex) ;;
        gemini) start=${GEMINI_PROJECT_DIR:-$was} ;;
        *) start=${CLAUDE_PROJECT_DIR:-$was} ;; # others are run from within Claude Code, too, and inherit this
    esac
    said=$start
    cd -P -- "$start" && start=$PWD # one folder has one name, whatever links lead to it
    walk "$start"
    case $root/ in
        */.claude/worktrees/*)
            inner_branch=$branch inner_top=$top
            walk "${root%%/.claude/worktrees/*}"
            branch=$inner_branch top=$inner_top
            ;;
    esac
    cd -- "$folder" || exit 0
}

# Whether this folder is none of our business: it says so, or the config does.
is_excluded() {
    [ "$enabled" != no ] || return 0
    [ -n "$exclude" ] || return 1
    place=${remote#*://}
    place=${place#*@}
    case $place in
        /* | *:[0-9]*/*) ;;
        *:*) place=${place%%:*}/${place#*:} ;;
    esac
    place=${place%/} && place=${place%.git}
    set -f
    IFS=:$nl
    for pattern in $exclude; do
        left "$pattern"
        right "$text"
        pattern=${text%/}
        case $pattern in
            '') continue ;;
            \~ | \~/*) pattern=${HOME:-}${pattern#?} ;;
        esac
        for text in "$start" "$said" "$root" "$top" "$place"; do
            # shellcheck disable=SC2254  # it is a pattern
            case $text in
                $pattern | $pattern/*) set +f && return 0 ;;
            esac
        done
    done
    IFS=" $tab$nl"
    set +f
    return 1
}

# header NAME VALUE: added to `head`. A value cannot begin another header.
header() {
    [ -n "$2" ] && [ "${#2}" -le "$HEADER_BYTES" ] || return 0
    value=$2
    case $value in
        *[[:cntrl:]]*)
            rest=$value value=''
            while [ -n "$rest" ]; do
                case $rest in
                    [[:cntrl:]]*) value=$value'?' ;;
                    *) value=$value${rest%"${rest#?}"} ;;
                esac
                rest=${rest#?}
            done
            ;;
    esac
    head=$head$1': '$value$nl
}

# The remote that this folder had when it was last seen, as `before`, if it was another. A repository that was put in the
# place of another one since then was never called that: the file that tells is one that is written once, when it is made.
remote_before() {
    before=''
    [ -n "$remote" ] || return 0
    sum=$(printf '%s' "$root" | cksum)
    sum=state/remote-${sum%% *}
    made=${common:-}/description
    [ "$kind" != hg ] || made=$main/.hg/requires
    # shellcheck disable=SC3013  # older than its place in the standard
    if [ -r "$sum" ] && [ -e "$made" ] && [ ! "$made" -nt "$sum" ]; then
        { IFS= read -r known && IFS= read -r before; } <"$sum"
        [ "$known" = "$root" ] && [ "$before" != "$remote" ] || before=''
    fi
    case $root$remote in
        *"$nl"*) before='' ;;
        *) printf '%s\n%s\n' "$root" "$remote" >"$sum" ;;
    esac
}

# What the branch has changed, and what is not committed, as `changed`: git gets a moment to tell it. A repository's own config can
# name programs that git runs when it opens changed files, or fetches what is missing. So it goes by what it has noted of the files,
# and by all of that, and fetches nothing.
changed_files() {
    changed=''
    [ -n "$top" ] && command -v git >/dev/null || return 0
    list=state/changed-$$
    (
        base=HEAD
        for text in remotes/origin/HEAD remotes/origin/main remotes/origin/master heads/main heads/master; do
            # a ref that is no file may be packed
            if [ -e "$common/refs/$text" ] || git -C "$top" rev-parse -q --verify "refs/$text" >/dev/null; then
                base="--merge-base refs/$text"
                break
            fi
        done
        export GIT_ALLOW_PROTOCOL=none
        # shellcheck disable=SC2086  # two words
        exec git --no-optional-locks -c core.fsmonitor=false -c core.quotepath=off -c core.trustctime=true \
            -c core.checkStat=default -C "$top" \
            diff-index --no-ext-diff --ignore-submodules --name-only $base --
    ) </dev/null >"$list" &
    asked=$!
    (sleep 0.3 && kill "$asked") </dev/null >/dev/null &
    watch=$!
    wait "$asked" && while IFS= read -r line; do
        case $line in
            \"*) continue ;; # with a tab or a line break in its name
        esac
        [ $((${#changed} + ${#line})) -lt "$HEADER_BYTES" ] || break
        changed=$changed${changed:+$tab}$line
    done <"$list"
    kill "$watch"
    rm -f "$list"
}
