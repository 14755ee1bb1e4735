# shellcheck shell=sh
# Which project a folder is: part of `hook`, which reads this file.
#
# A repository is a stranger's: a file of it may be endless, be one line of megabytes, be made to take minutes, or never answer. So
# one process of the shell reads all of them, and is killed when it takes too long. Of it come a few short lines, each beginning with
# the name of what was found. That process starts no other on its way, so that nothing is left of it; a file is read by the shell
# itself, and none that is longer than people write them to its end.

BYTES=65536 # of all files together
LINES=4000
LINE_BYTES=1000
BIG_BLOCKS=2048 # of 512 bytes
NAME_BYTES=500  # as the server has it
PATH_BYTES=4096
LEVELS=200
READ_SECONDS=0.3
LATE_SECONDS=5 # of a drain, for which nobody waits
space='[[:space:]][[:space:]][[:space:]][[:space:]][[:space:]][[:space:]][[:space:]][[:space:]]'
many_blanks="*$space$space$space$space*"
read_seconds=$READ_SECONDS

# trim_left TEXT, trim_right TEXT: the text without blanks there, as `text`.
trim_left() {
    text=${1#"${1%%[![:space:]]*}"}
}

trim_right() {
    text=$1
    while :; do
        case $text in
            *[[:space:]]) text=${text%?} ;;
            *) return 0 ;;
        esac
    done
}

# is_file PATH: a folder may hold links to devices and pipes, which have no end, or take what the agent says. Files of the kernel that
# wait until something happens say that they are empty.
is_file() {
    [ -f "$1" ] && [ -s "$1" ] && [ -r "$1" ]
}

# within SECONDS COMMAND...: runs it, and ends it when it takes longer: its status is above 128 then. Until the guard has traps and an
# output of its own, it has those of the hook: dash forgets a signal that the hook has a trap for, and bash runs that of its EXIT for any.
within() {
    limit=$1
    shift
    "$@" </dev/null &
    job=$! forking=yes
    (
        trap 'kill "$!"; exit' USR1
        sleep "$limit" &
        wait "$!" && kill -9 "$job" # without `sleep` there is no deadline
    ) </dev/null >/dev/null &
    guard=$! forking=''
    wait "$job"
    ended=$?
    kill -USR1 "$guard"
    return "$ended"
}

# read_file READER FILE: gives each line of its beginning to READER, until that has what it looks for. One line can be endless, which
# the time ends; a drain has so much of it that it first asks how long the file is.
read_file() {
    is_origin='' goes_on='' section=''
    if [ "$read_seconds" = "$LATE_SECONDS" ] && [ -n "$(find -L "$2" -prune -size "+$BIG_BLOCKS")" ]; then
        [ "$1" != read_toml ] || misunderstand 'it is too long'
        return 0
    fi
    while [ "$lines" -lt "$LINES" ] && [ "$bytes" -lt "$BYTES" ] && { IFS=" $tab" read -r line || [ -n "$line" ]; }; do
        lines=$((lines + 1)) bytes=$((bytes + ${#line})) toml_lines=$((toml_lines + 1))
        is_odd=''
        [ "${#line}" -le "$LINE_BYTES" ] || is_odd=yes
        # shellcheck disable=SC2254  # it is a pattern
        case $line in
            \#*) ;;
            $many_blanks) is_odd=yes ;;
        esac
        if [ -z "$is_odd" ]; then
            "$1" "$line" || return 0
        elif [ "$1" = read_toml ]; then
            case $line in
                \#*) ;;
                *) misunderstand 'a line that is too long' || return 0 ;;
            esac
        fi
    done <"$2"
    [ "$1" != read_toml ] || { [ "$lines" -lt "$LINES" ] && [ "$bytes" -lt "$BYTES" ]; } || misunderstand 'it is too long' || return 0
}

read_first() {
    found=$1
    return 1
}

# first_line NAME FILE: as the value of NAME.
first_line() {
    found=''
    ! is_file "$2" || read_file read_first "$2"
    eval "$1=\$found"
}

# misunderstand WHY: a .cmserver.toml is not understood. Nothing is sent then: whoever wrote it may believe so.
misunderstand() {
    [ -n "$misread" ] || misread="${here:-}/.cmserver.toml is not understood: line $toml_lines, $1"
    return 1
}

# is_known KEY: whether it is a key that we know, however it is written.
is_known() {
    case $1 in
        [Pp][Rr][Oo][Jj][Ee][Cc][Tt] | [Ee][Nn][Aa][Bb][Ll][Ee][Dd] | [Pp][Rr][Ii][Vv][Aa][Tt][Ee]) ;;
        *) return 1 ;;
    esac
}

# is_end TEXT: whether a value ends there: nothing comes but a comment.
is_end() {
    trim_left "$1"
    case $text in
        '' | \#*) ;;
        *) return 1 ;;
    esac
}

# The first project on the way up to the top of the checkout counts, and the first word on whether it is enabled. What is private
# anywhere on the way is private: `false` makes nothing public.
read_toml() {
    line=$1
    [ "$toml_lines" -gt 1 ] || line=${line#"${line%%[ -~]*}"} # without the mark of an encoding
    if [ -n "$goes_on" ]; then # the value of a key that we do not know
        case $line in
            *"$goes_on"*) goes_on='' ;;
        esac
        return 0
    fi
    ! is_end "${line#]}" || return 0
    case $line in
        \[*\]*)
            section=${line#\[}
            section=${section#\[}
            trim_left "${section%%\]*}"
            ! is_known "${text%%[. ]*}" || misunderstand 'project, enabled and private are no tables'
            return
            ;;
        *=*) ;;
        *)
            misunderstand 'no key = value'
            return
            ;;
    esac
    trim_right "${line%%=*}"
    key=$text
    case $key in
        \"*\" | \'*\') key=${key#?} && key=${key%?} ;;
    esac
    trim_left "${line#*=}"
    value=$text
    case $key in
        project | enabled | private) ;;
        *)
            if is_known "${key%%[. ]*}" || is_known "${key##*[. ]}"; then
                misunderstand 'the keys are project, enabled and private, in small letters'
            else
                read_other_value
            fi
            return
            ;;
    esac
    [ -z "$section" ] || misunderstand "$key belongs above all tables" || return
    case $seen in
        *"$key"*) misunderstand "$key is there twice" || return ;;
    esac
    seen=$seen$key
    if [ "$key" = enabled ]; then
        case $value in
            true*) said_enabled=yes && value=${value#true} ;;
            false*) said_enabled=no && value=${value#false} ;;
            *) value=none ;;
        esac
        is_end "$value" || misunderstand 'enabled is true or false, without quotes'
        return
    fi
    if [ "$key" = private ]; then
        case $value in
            true*) private=yes && value=${value#true} ;;
            false*) value=${value#false} ;;
            *) value=none ;;
        esac
        is_end "$value" || misunderstand 'private is true or false, without quotes'
        return
    fi
    rest=none toml_named=''
    case $value in
        \"\"\"* | "'''"*) ;;
        \"*) text=${value#?} && toml_string ;;
        \'*\'*) value=${value#?} && toml_named=${value%%\'*} && rest=${value#*\'} ;;
    esac
    is_end "$rest" || misunderstand 'project is one text in quotes, without escapes' || return
    [ "${#toml_named}" -le "$NAME_BYTES" ] || misunderstand 'the name is too long' || return
    if [ -z "$named$kind" ] && [ -n "$toml_named" ]; then
        named=$toml_named root=${here:-/}
    fi
}

# The value of a key that we do not know: it may go over several lines.
read_other_value() {
    case $key in
        *[!A-Za-z0-9_.\ -]* | '') ;;
        *) [ -n "$unknown" ] || unknown="${here:-}/.cmserver.toml has the key $key, which means nothing here." ;;
    esac
    case $value in
        \"\"\"*) goes_on='"""' rest=${value#???} ;;
        "'''"*) goes_on="'''" rest=${value#???} ;;
        \[*) goes_on=']' rest=${value#?} ;;
        \{*\}* | \"*\"* | \'*\'* | [0-9+-]* | true* | false* | inf* | nan*) return 0 ;;
        *)
            misunderstand 'a text needs quotes'
            return
            ;;
    esac
    case $rest in
        *"$goes_on"*) goes_on='' ;;
    esac
}

# toml FILE
toml() {
    said_enabled='' seen='' toml_lines=0
    if [ -f "$1" ] && [ ! -r "$1" ]; then
        misunderstand 'it cannot be read'
    elif is_file "$1"; then
        read_file read_toml "$1"
        [ -z "$goes_on" ] || misunderstand 'a value without an end'
    fi
    [ -n "$enabled" ] || enabled=$said_enabled
}

# The name in a .contextify.yml: the nearest one in the checkout counts, where no .cmserver.toml there names a project.
read_yml() {
    case $1 in
        name:[" $tab"]*) trim_left "${1#name:}" ;;
        *) return 0 ;;
    esac
    case $text in
        \"*) text=${text#?} && text=${text%%\"*} ;;
        \'*) text=${text#?} && text=${text%%\'*} ;;
        \#*) text='' ;;
        *) text=${text%%[" $tab"]#*} ;;
    esac
    trim_right "$text"
    [ "${#text}" -le "$NAME_BYTES" ] || text=''
    yml_named=$text
    [ -z "$text" ] || yml_root=${here:-/}
    return 1
}

# yml FILE
yml() {
    [ -z "$yml_named$kind" ] || return 0
    ! is_file "$1" || read_file read_yml "$1"
}

# The name in a string with escapes, as `toml_named`, and what comes behind it, as `rest`: not of one without an end.
toml_string() {
    rest=$text
    while :; do
        text=${rest%%[\"\\]*}
        toml_named=$toml_named$text
        rest=${rest#"$text"}
        case $rest in
            \"*) rest=${rest#?} && return ;;
            \\[\"\\]*) rest=${rest#?} && toml_named=$toml_named${rest%"${rest#?}"} && rest=${rest#?} ;;
            *) rest=x && return ;; # other escapes would be part of the name
        esac
    done
}

# The value of a line of git's config, as `value`: quotes, escapes and comments.
git_value() {
    trim_left "$1"
    case $text in
        *[\"\\\#\;]*) ;;
        *) trim_right "$text" && value=$text && return ;;
    esac
    value='' quoted='' rest=$text
    while :; do
        text=${rest%%[\"\\\#\;]*}
        value=$value$text
        rest=${rest#"$text"}
        case $rest in
            \"*) if [ -n "$quoted" ]; then quoted=''; else quoted=yes; fi ;;
            \\n*) rest=${rest#?} && value=$value$nl ;;
            \\t*) rest=${rest#?} && value=$value$tab ;;
            \\?*) rest=${rest#?} && value=$value${rest%"${rest#?}"} ;;
            [\#\;]*)
                [ -n "$quoted" ] || break
                value=$value${rest%"${rest#?}"}
                ;;
            *) break ;;
        esac
        rest=${rest#?}
    done
    trim_right "$value" && value=$text
}

# The url of origin, as `remote`. What includes and insteadOf say is not asked.
read_git_config() {
    trim_left "$goes_on$1"
    line=$text goes_on=''
    case $line in
        \[*)
            line=${line#?}
            section=${line%%[!A-Za-z0-9.-]*}
            trim_left "${line#"$section"}"
            is_origin=''
            case $section$text in
                [Rr][Ee][Mm][Oo][Tt][Ee]\"origin\"\]*) is_origin=yes ;;
                [Rr][Ee][Mm][Oo][Tt][Ee].[Oo][Rr][Ii][Gg][Ii][Nn]\]*) is_origin=yes ;;
                *) return 0 ;;
            esac
            trim_left "${text#*]}"
            line=$text
            ;;
    esac
    [ -n "$is_origin" ] || return 0
    case $line in
        [Uu][Rr][Ll][[:space:]=]*) trim_left "${line#???}" ;;
        *) return 0 ;;
    esac
    case $text in
        =*\\\\ | =*\\\\[[:space:]]) ;;
        =*\\ | =*\\[[:space:]]) # in the next line
            text=${text%[[:space:]]}
            [ "${#text}" -gt "$LINE_BYTES" ] || goes_on="url ${text%?}"
            return 0
            ;;
    esac
    case $text in
        =*) git_value "${text#=}" && remote=$value ;;
    esac
    [ -z "$remote" ]
}

# The default path of Mercurial, as `remote`.
read_hgrc() {
    trim_right "$1"
    case $text in
        \[*) section=$text && return ;;
        default[[:space:]=]*) trim_left "${text#default}" ;;
        *) return 0 ;;
    esac
    case $section$text in
        '[paths]='*) trim_left "${text#=}" && remote=$text ;;
    esac
    [ -z "$remote" ]
}

# Without who enters and by what, and without what is only a place relative to this folder.
clean_remote() {
    case $remote in
        *://*)
            scheme=${remote%%://*}:// rest=${remote#*://}
            case $scheme in
                [Hh][Tt][Tt][Pp]://* | [Hh][Tt][Tt][Pp][Ss]://*) rest=${rest%%[?#]*} ;; # in any other, they are part of the path
            esac
            case ${rest%%/*} in
                *@*) host=${rest%%/*} && rest=${host##*@}${rest#"$host"} ;;
                *:*[!0-9]*)
                    case $rest in
                        \[*) ;;
                        *@*) rest=${rest##*@} ;; # a password with a slash in it
                    esac
                    ;;
            esac
            remote=${rest:+$scheme$rest}
            ;;
        /*) ;;
        *)
            host=${remote%%[:/]*}
            case $host/${remote%%/*} in
                *@*/*:*) remote=git@${host##*@}${remote#"$host"} ;; # without a user it might be no address
                *:*@*) remote=${remote#*@} ;;
                *:*) ;;
                *) remote='' ;;
            esac
            ;;
    esac
}

# A line of packed-refs: a hash and a name.
read_packed_ref() {
    case $1 in
        *" $ref") commit=${1%% *} ;;
        *) return 0 ;;
    esac
    return 1
}

# read_commit: the commit that is checked out, as `commit`, from HEAD, the branch's own file, or the one that packs them; not from a
# reftable.
read_commit() {
    commit=''
    trim_right "$head_line"
    case $text in
        'ref: refs/heads/.invalid'* | *..* | *[[:cntrl:]]*) ;;
        'ref: refs/'*)
            ref=${text#ref: } lines=0 bytes=0
            if is_file "$common/$ref"; then
                first_line commit "$common/$ref"
            elif is_file "$common/packed-refs"; then
                read_file read_packed_ref "$common/packed-refs"
            fi
            ;;
        *) commit=$text ;;
    esac
    trim_right "$commit"
    commit=$text
    case ${#commit}$commit in
        *[!0-9a-f]*) commit='' ;;
        40* | 64*) ;;
        *) commit='' ;;
    esac
}

# git_folders: of the work tree `top`, its own folder, the one that its work trees share, and the main one of them.
git_folders() {
    git=$top/.git common=$top/.git main=$top
    [ -n "$pointer" ] || return 0
    trim_right "${pointer#gitdir:}"
    trim_left "$text"
    case $text in
        /*) git=$text ;;
        *) git=$top/$text ;;
    esac
    common=$git
    head_line='' remote=''
    if cd -P -- "$git"; then
        first_line head_line HEAD
        first_line commondir commondir
        ! is_file config || [ -n "$commondir" ] || read_file read_git_config config
    fi
    trim_right "$commondir"
    case $text in
        /*) common=$text ;;
        ?*) common=$git/$text ;;
        *)
            case $git in
                */.git/worktrees/*) common=${git%/worktrees/*} ;; # in a container, where only the work tree is
                *) return 0 ;;
            esac
            ;;
    esac
    if cd -P -- "$common"; then
        common=$PWD remote=''
        ! is_file config || read_file read_git_config config
    fi
    main=$common
    case $main in
        */.git) main=${main%/.git} ;;
    esac
    main=${main:-/}
}

forget_project() {
    root='' named='' kind='' enabled='' private='' remote='' branch='' commit='' top='' main='' common='' git='' misread='' unknown=''
}

# walk_up FOLDER: sets `root`, `named`, `remote`, `branch`, `commit`, `top` (the work tree, where there is one), `enabled`, `private`.
walk_up() {
    folder_asked=$1
    forget_project
    head_line='' commondir='' pointer='' lines=0 bytes=0 toml_lines=0 yml_named='' yml_root=''
    here=${1%/}
    until cd -P -- "${here:-/}"; do # it may be gone
        [ -n "$here" ] || return 0
        here=${here%/*}
    done
    here=${PWD%/} up='' levels=0
    while :; do
        toml "$up.cmserver.toml"
        yml "$up.contextify.yml"
        if [ -n "$kind" ]; then
            :
        elif [ -f "$up.git" ] || [ -f "$up.git/HEAD" ] || [ -f "$up.git/config" ]; then
            kind=git top=$here main=$here
            first_line pointer "$up.git"
            first_line head_line "$up.git/HEAD"
            ! is_file "$up.git/config" || read_file read_git_config "$up.git/config"
        elif [ -d "$up.hg" ]; then
            kind=hg main=$here
            ! is_file "$up.hg/hgrc" || read_file read_hgrc "$up.hg/hgrc"
        elif [ -d "$up.svn" ]; then
            kind=svn main=$here
        elif [ -f "${up}HEAD" ] && [ -d "${up}objects" ] && [ -d "${up}refs" ] && [ "${here##*/}" != .git ]; then
            kind=git common=$here main=$here # a bare one
            first_line head_line "${up}HEAD"
            ! is_file "${up}config" || read_file read_git_config "${up}config"
        fi
        levels=$((levels + 1))
        [ -n "$here" ] && [ "$levels" -lt "$LEVELS" ] || break
        here=${here%/*} up=../$up
    done
    if [ "$kind" = git ]; then
        [ -z "$top" ] || git_folders
        case $head_line in
            'ref: refs/heads/.invalid'*) ;; # HEAD is in a reftable
            'ref: refs/heads/'*) trim_right "${head_line#ref: refs/heads/}" && branch=$text ;;
        esac
        read_commit
        if [ -z "$named$enabled$private" ] && [ "$main" != "${top:-$main}" ] && cd -P -- "$main"; then
            here=${main%/} kind=''
            toml .cmserver.toml
            yml .contextify.yml
            kind=git
        fi
    fi
    [ -n "$named" ] || [ -z "$yml_named" ] || { named=$yml_named && root=$yml_root; }
    [ -n "$root" ] || root=${main:-/}
    [ -n "$kind$named" ] || root=$folder_asked
    clean_remote
}

# find_repository FOLDER: what `find_project` asks its own process for.
find_repository() {
    walk_up "$1"
    case $root/ in
        */.claude/worktrees/*)
            inner_branch=$branch inner_commit=$commit inner_git=$git inner_top=$top
            inner_enabled=$enabled inner_misread=$misread inner_private=$private
            root=${root%%/.claude/worktrees/*}
            walk_up "${root:-/}"
            branch=$inner_branch commit=$inner_commit git=$inner_git top=$inner_top
            enabled=${inner_enabled:-$enabled} misread=${inner_misread:-$misread} private=${inner_private:-$private}
            ;;
    esac
    print_value named "$named" "$NAME_BYTES"
    print_value remote "$remote" "$NAME_BYTES"
    print_value branch "$branch" "$LINE_BYTES"
    print_value commit "$commit" "$LINE_BYTES"
    print_value root "$root" "$PATH_BYTES"
    print_value top "$top" "$PATH_BYTES"
    print_value main "$main" "$PATH_BYTES"
    print_value common "$common" "$PATH_BYTES"
    print_value git "$git" "$PATH_BYTES"
    print_value misread "$misread" $((PATH_BYTES * 2))
    print_value unknown "$unknown" $((PATH_BYTES * 2))
    printf 'kind=%s\nenabled=%s\nprivate=%s\nend=\n' "$kind" "$enabled" "$private"
}

# print_value NAME VALUE MAX: the name before each line of the value, so that no line of it can be taken for another.
print_value() {
    [ -n "$2" ] && [ "${#2}" -le "$3" ] || return 0
    rest=$2
    while :; do
        case $rest in
            *"$nl"*) printf '%s=%s\n' "$1" "${rest%%"$nl"*}" && rest=${rest#*"$nl"} ;;
            *) break ;;
        esac
    done
    printf '%s=%s\n' "$1" "$rest"
}

# Where the agent works, as `start`: the folder in the agent's own variable (an agent that was started by another one inherits that
# one's, too), else the working folder. A path that is not absolute says nothing: nobody knows what it is relative to.
find_start() {
    start=$was
    read_variable "$folder_variable"
    [ "${#text}" -le "$PATH_BYTES" ] || return 0
    case $text in
        /*) start=$text ;;
        [A-Za-z]:[/\\]*) # of Windows, where Git's shell knows it, as /c/...
            ! cd -- "$text" 2>/dev/null || start=$PWD
            cd -- "$folder" || exit 0
            ;;
    esac
}

# as_agent_says PATH: the path as `text`. In Git's shell of Windows it is /c/Users, and C:/Users to the agent, as which it is sent.
as_agent_says() {
    text=$1
    case ${MSYSTEM:+windows}$1 in
        windows/[A-Za-z]) set -- "$1/" ;;
        windows/[A-Za-z]/*) ;;
        *) return 0 ;;
    esac
    text=${1#/}
    text=$(printf '%s' "${text%%/*}" | tr 'a-z' 'A-Z'):${1#/?}
}

# find_called: what the project is called, as `called`.
find_called() {
    as_agent_says "$root"
    called=${named:-${remote:-$text}}
}

# The project of `start`. When it cannot be found in time, `is_cut` says so.
find_project() {
    forget_project
    is_cut='' said=$start
    case $start in
        /*) ;;
        *) return 0 ;; # a folder that is gone, of which the shell knows no name
    esac
    if [ "${#start}" -gt "$PATH_BYTES" ]; then # the kernel takes no such name either
        text=$(printf '%s' "$start" | cksum)
        root=$(printf '%.400s' "$start")-${text%% *}
        return 0
    fi
    cd -P -- "$start" && start=$PWD # one folder has one name, whatever links lead to it
    cd -- "$folder" || exit 0
    while :; do
        case $start in
            //*) start=${start#/} ;;
            *) break ;;
        esac
    done
    text=$(within "$read_seconds" find_repository "$start")
    case $text in
        *"${nl}end=") ;;
        *) is_cut=yes root=$start && return ;;
    esac
    set -f
    IFS=$nl
    # shellcheck disable=SC2086  # lines
    set -- $text
    IFS=" $tab$nl"
    set +f
    for line in "$@"; do
        value=${line#*=}
        case $line in
            named=* | remote=* | branch=* | commit=* | root=* | top=* | main=* | common=* | git=* | misread=* | unknown=* | kind=* | enabled=* | private=*)
                eval "text=\$${line%%=*}"
                eval "${line%%=*}=\$text\${text:+\$nl}\$value"
                ;;
        esac
    done
    [ -n "$root" ] || root=$start
}

# caseless NAME: whether it begins with a host that ignores the case of names, as the server knows them; in lower case, as `text`.
caseless() {
    text=$(printf '%s' "$1" | tr 'A-Z' 'a-z')
    case $text in
        github.com/* | gitlab.com/* | bitbucket.org/* | dev.azure.com/*) ;;
        *) return 1 ;;
    esac
}

# Whether what is said here is private: the environment says so (CMSERVER_PRIVATE=1), or the folder does, once it is known.
is_private() {
    case ${CMSERVER_PRIVATE:-} in
        '' | 0 | [Ff][Aa][Ll][Ss][Ee]) [ "$private" = yes ] ;;
    esac
}

# Whether this folder is none of our business: it says so, or says something that nobody understands, or the config says so.
is_excluded() {
    [ "$enabled" != no ] && [ -z "$misread" ] || return 0
    [ -n "$exclude" ] || return 1
    place=${remote#*://}
    place=${place#*@}
    case $place in
        /* | *:[0-9]*/*) ;;
        *:*) place=${place%%:*}/${place#*:} ;;
    esac
    place=${place%/} && place=${place%.git}
    place_once=$place # as the server knows it: without a port, and no second address of a large host
    text=${place#*:}
    case ${text%%/*} in
        '' | *[!0-9]*) ;;
        *) place_once=${place%%:*}/${text#*/} ;;
    esac
    case $place_once in
        [Ss][Ss][Hh].[Gg]* | [Aa][Ll][Tt][Ss][Ss][Hh].[GgBb]* | [Ww][Ww][Ww].[GgBb]*)
            ! caseless "${place_once#*.}" || place_once=${place_once#*.}
            ;;
    esac
    ! caseless "$place_once" || place_once=$text
    set -f
    IFS=:$nl
    # shellcheck disable=SC2086  # patterns
    set -- $exclude
    IFS=" $tab$nl"
    set +f
    for pattern in "$@"; do
        trim_left "$pattern"
        trim_right "$text"
        pattern=${text%/}
        case $pattern in
            '') continue ;;
            \~ | \~/*) pattern=${HOME:-}${pattern#?} ;;
            [Gg][Ii][Tt]* | [Bb][Ii][Tt]* | [Dd][Ee][Vv].*) ! caseless "$pattern" || pattern=$text ;;
        esac
        for text in "$start" "$said" "$root" "$top" "$place" "$place_once"; do
            # shellcheck disable=SC2254  # it is a pattern
            case $text in
                $pattern | $pattern/*) return 0 ;;
            esac
        done
        case $pattern in
            *[*?[]*) continue ;;
            /*) cd -P -- "$pattern" || continue ;; # it may be called by a link to it
            *) continue ;;
        esac
        target=${PWD%/}
        cd -- "$folder" || exit 0
        for text in "$start" "$root" "$top"; do
            case $text in
                "$target" | "$target"/*) return 0 ;;
            esac
        done
    done
    return 1
}

# header NAME VALUE: added to `head`. A value cannot begin another header.
header() {
    [ -n "$2" ] && [ "${#2}" -le "$HEADER_BYTES" ] || return 0
    value=$2
    case $value in
        *[[:cntrl:]]*) value=$(printf '%s' "$value" | tr '[:cntrl:]' '?') ;;
    esac
    head=$head$1': '$value$nl
}

# read_note FOLDER: what is noted of it, as `known` (where it was), `known_name` (what its project was called) and `known_kind`; its
# note is `note`. A folder is known by what the file system calls it, so also when it was renamed, and a new one in its place is not.
# Where that tells no time of birth, it is known by its path (`is_path` is not empty).
read_note() {
    known='' known_name='' known_kind='' is_path=''
    text=$(stat -c %i-%W -- "$1" || stat -f %i-%B -- "$1")
    case $text in
        *[!0-9-]* | -* | *-*-* | *-0 | *-) text='' ;;
    esac
    if [ -z "$text" ]; then
        text=$(printf '%s' "$1" | cksum)
        text=path-${text%% *} is_path=yes
    fi
    note=state/name-$text
    [ ! -r "$note" ] || { IFS= read -r known && IFS= read -r known_name && IFS= read -r known_kind; } <"$note"
}

# What the project of this folder was called when the folder was last seen, as `before`, if that was otherwise. Notes what it is called.
name_before() {
    before='' name=$called
    case $start$root$name in
        *"$nl"*) return 0 ;;
    esac
    if [ "$start" != "$root" ]; then # a repository may have been made above it
        read_note "$start"
        [ "$known$known_kind" != "$start" ] || [ -n "$is_path" ] || before=$known_name
    fi
    read_note "$root"
    # A repository that was put in the place of another one was never called that: the file that tells is one that is written once,
    # when it is made.
    made=${common:-}/description
    [ "$kind" != hg ] || made=$main/.hg/requires
    if [ "$known" = "$root" ]; then
        if [ -n "$known_kind" ]; then
            # shellcheck disable=SC3013  # older than its place in the standard
            [ ! -e "$made" ] || [ "$made" -nt "$note" ] || before=$known_name
        elif [ -z "$is_path" ]; then
            before=$known_name
        fi
    elif [ -n "$known" ] && [ -z "$is_path" ] && as_agent_says "$known" && [ "$known_name" = "$text" ] && [ ! -e "$known" ]; then
        before=$known_name # it was renamed
    fi
    [ "$before" != "$name" ] || before=''
    printf '%s\n%s\n%s\n' "$root" "$name" "$kind" >"$note"
}
