# shellcheck shell=sh
# Which commits of a clone are not merged, and which are gone: part of `hook`, which code.sh reads at a session's start.

BRANCH_COMMITS=500 # of branches, and as many that are gone
BRANCH_TIPS=100
COMPARED_TIPS=3      # at one start
COMPARED_COMMITS=100 # of more nothing is told
COMPARED_PATHS=100   # that a branch touched: it is compared with commits that touch these, or else with any
PATCH_BYTES=5000000
PATCH_WORDS='-p --no-renames --no-ext-diff --no-textconv --ignore-submodules=all --no-color --no-relative --full-index'
ATTEMPTS=5 # of what git does not say in time, until a branch moves
REFS='--glob=refs/heads --glob=refs/remotes'

# have_refs_changed: whether a branch came, moved or went since the last start that read them, or git did not say all in time then.
have_refs_changed() {
    [ -e "$seen" ] || return 0
    for file in "$common/packed-refs" "$common"/refs/heads/ "$common"/refs/heads/*/ "$common"/refs/heads/*/*/ \
        "$common"/refs/remotes/*/ "$common"/refs/remotes/*/*/ "$common"/refs/remotes/*/*/*/; do
        # shellcheck disable=SC3013  # each shell has it
        [ ! "$file" -nt "$seen" ] || return 0
    done
    return 1
}

# The file `tips` has in each line a hash, a name, and the commit of the trunk up to which it was compared with it, or - for none. The name
# is that of a branch that is not merged; `gone:` and a name was one at an earlier start, and no branch has it now. The first is what was
# checked out, behind `at:`, with the number of attempts in vain. `seen` is as old as what git was asked.
note_tips() {
    [ -e "$seen-$$" ] || return 0
    [ -n "$is_late" ] || attempt=0
    printf '%s at:refs/heads/%s %s\n%s' "$commit" "$branch" "$attempt" "$tip_lines" >"$tips"
    if [ -n "$is_late" ] && [ "$attempt" -lt "$ATTEMPTS" ]; then
        rm -f "$seen" "$seen-$$"
    else
        mv -f "$seen-$$" "$seen"
    fi
}

# read_branches: which commits are on branches that neither what is checked out nor the trunk has, as `unmerged`, and which were on one at
# an earlier start and are on none now, as `gone`. What git does not say in time the server does not mark, and the next start asks
# again. `is_rewound` is whether what was checked out then is no longer in the history of what is now.
# shellcheck disable=SC2086  # REFS
read_branches() {
    unmerged='' gone='' before_lines='' tip_lines='' attempt=1
    if [ -e "$common/shallow" ]; then # there git cannot tell what is merged
        [ "$before" != "$commit" ] || news=''
        return 0
    fi
    true >"$seen-$$"
    [ ! -r "$tips" ] || before_lines=$(cat "$tips")$nl # `read` would take a byte at a time
    text=${before_lines%%"$nl"*}
    number "${text##* }" 0
    attempt=$((n + 1))
    if ! git_code log --ignore-missing --source --topo-order --max-count="$BRANCH_COMMITS" --no-show-signature --no-color --no-notes \
        '--format=%H %S' $REFS --not "$commit" refs/remotes/origin/HEAD refs/remotes/origin/main refs/remotes/origin/master \
        refs/heads/main refs/heads/master --; then
        is_late=yes tip_lines=${before_lines#*"$nl"}
        return 0
    fi
    unmerged=$text
    if [ -z "$unmerged$is_rewound${before_lines#*"$nl"}" ]; then
        [ "$before" != "$commit" ] || news=''
        return 0
    fi
    find_trunk_commit
    lines=$(cat "state/code-$$") last='' count=0
    split_lines
    for line in $lines; do # a branch's own commit comes before those below it
        name=${line#* }
        [ "$name" != "$last" ] || continue
        last=$name
        case $tip_lines in
            *" $name "*) continue ;;
        esac
        count=$((count + 1))
        [ "$count" -le "$BRANCH_TIPS" ] || break
        add_tip "${line%% *}" "$name"
    done
    find_left
    split_words
    [ -z "$left" ] || read_gone
}

# split_lines, split_words: a text without quotes is split at line breaks, or at blanks as ever.
split_lines() {
    set -f
    IFS=$nl
}

split_words() {
    IFS=" $tab$nl"
    set +f
}

# take_fields LINE: of a line of tips, as `hash`, `name` and `compared_with`.
take_fields() {
    hash=${1%% *} compared_with=${1##* } name=${1#* }
    name=${name% *}
}

# add_tip HASH NAME: as a line of `tip_lines`, with the trunk's commit if it was compared with that.
add_tip() {
    case $nl$before_lines in
        *"$nl$1 $2 $trunk_commit$nl"*) tip_lines=$tip_lines$1\ $2\ $trunk_commit$nl ;;
        *) tip_lines="$tip_lines$1 $2 -$nl" ;;
    esac
}

# find_trunk_commit: the commit of the trunk, as `trunk_commit`, without git; without a trunk it is what is checked out.
find_trunk_commit() {
    find_trunk
    at=$commit trunk_commit='' toml_lines=0
    if [ -n "$trunk" ]; then
        head_line="ref: $trunk"
        [ "$trunk" != refs/remotes/origin/HEAD ] || IFS= read -r head_line <"$common/$trunk"
        read_commit
        trunk_commit=$commit commit=$at
    fi
    trunk_commit=${trunk_commit:-$commit}
}

# find_left: the tips of before that are not on a branch where they were seen, as lines of a hash and a name.
find_left() {
    left='' lines=$nl$lines$nl
    for line in $before_lines; do
        take_fields "$line"
        case $hash in
            *[!0-9a-f]* | '') continue ;;
        esac
        case $name in
            at:*) [ -n "$is_rewound" ] || continue ;;
        esac
        case $nl$tip_lines$lines in
            *"$nl$hash "*) ;;
            *) left="$left$hash gone:${name#*:}$nl" ;;
        esac
    done
}

# read_gone: the commits of `left` that no branch has, as `gone`.
# shellcheck disable=SC2086  # REFS
read_gone() {
    set --
    while IFS=' ' read -r hash name; do
        [ -z "$hash" ] || set -- "$@" "$hash"
    done <<EOF
$left
EOF
    if ! git_code log --ignore-missing --source --topo-order --max-count="$BRANCH_COMMITS" --no-show-signature --no-color --no-notes \
        '--format=%H %S' "$@" --not "$commit" $REFS --; then
        is_late=yes
        for hash in "$@"; do
            text=${left#*"$hash "}
            tip_lines="$tip_lines$hash ${text%%"$nl"*} -$nl"
        done
        return 0
    fi
    gone=$text last=''
    while IFS=' ' read -r hash name; do
        [ "$name" != "$last" ] || continue
        last=$name
        text=${left#*"$name "} && text=${text%%"$nl"*}
        case $tip_lines in
            *"$name $text "*) ;;
            *) add_tip "$name" "$text" ;;
        esac
    done <"state/code-$$"
}

# write_branches: `branches`, as a part of the request: of tips that were compared the server knows the outcome, or is told it as PATCHES.
write_branches() {
    branches=''
    [ -e "$seen-$$" ] || return 0
    compared=''
    split_lines
    for line in $tip_lines; do
        take_fields "$line"
        [ "$compared_with" = - ] || compared="$compared${compared:+,}\"$hash\""
    done
    split_words
    branches=",\"branches\":{\"unmerged\":\"$unmerged\",\"gone\":\"$gone\",\"compared\":[$compared],\"patches\":\"$1\"}"
}

# compare_asked: compares the tips of which the server's memory speaks, and that were not yet, and tells it. What is gone and of which
# nothing is asked needs no line any more.
compare_asked() {
    [ -e "$seen-$$" ] && [ -z "$is_late" ] || return 0
    asked='' count=0 lines=$tip_lines tip_lines=''
    split_lines
    for line in $lines; do
        take_fields "$line"
        case $first in
            *\"asked\":*\""${hash%"${hash#????????????}"}"\"*) # as the server knows them
                count=$((count + 1))
                if [ "$count" -gt "$COMPARED_TIPS" ]; then is_late=yes; else asked=$asked$hash\ $name$nl; fi
                tip_lines="$tip_lines$hash $name -$nl"
                ;;
            *)
                case $name$compared_with in
                    gone:*-) ;;
                    *) tip_lines=$tip_lines$line$nl ;;
                esac
                ;;
        esac
    done
    split_words
    [ -n "$asked" ] || return 0
    in_time=''
    within "$READ_SECONDS" compare_tips >"state/code-$$" || is_late=yes
    in_time="within $READ_SECONDS"
    lines=$nl$(grep '^done ' "state/code-$$")$nl text=$(base64 <"state/code-$$" | tr -d '\n')
    case $lines in
        *done*) attempt=0 ;; # it goes on
        *) return 0 ;;
    esac
    asked=$tip_lines tip_lines=''
    split_lines
    for line in $asked; do
        take_fields "$line"
        case $lines in
            *"${nl}done $hash$nl"*) compared_with=$trunk_commit ;;
        esac
        tip_lines="$tip_lines$hash $name $compared_with$nl"
    done
    split_words
    write_branches "$text"
    write_code
    post_code || is_late=yes tip_lines=$asked
}

# compare_tips: prints of each tip that is `asked` what compare_tip says.
compare_tips() {
    ulimit -t 1 # one that is killed may leave a git
    while IFS=' ' read -r hash name; do
        [ -z "$hash" ] || compare_tip || return 1
    done <<EOF
$asked
EOF
}

# compare_tip: prints `tip HASH there NAME`, or `missing` where no branch is called so; then what `git patch-id` says of all of its
# commits as one and of each, `others`, the same of those that may hold as much, and `done HASH`. Two diffs of one text have one id: a branch is found again
# after a squash by all, and after a rebase by each of its commits. Where that is too much nothing is told, and it is not asked again.
# shellcheck disable=SC2086  # PATCH_WORDS, and names of refs, which have no blanks
compare_tip() {
    case ${name#gone:} in
        refs/heads/?*) text=${name#*refs/heads/} ;;
        refs/remotes/*/?*) text=${name#*refs/remotes/*/} ;;
        *) text='' ;;
    esac
    refs='' there=missing
    [ -z "$text" ] || refs=$(run_git for-each-ref '--format=%(refname)' "refs/heads/$text" "refs/remotes/*/$text") || return 1
    [ -z "$refs" ] || there=there
    others=${trunk:-$commit} # with whatever else is checked out now the outcome must hold
    case $name in
        gone:*) others="$commit $trunk $refs" ;;
    esac
    set -- log --no-renames --no-ext-diff --no-textconv --ignore-submodules=all --no-color --no-show-signature --no-notes
    run_git "$@" --format= --name-only "$hash" --not "$commit" $trunk -- >"state/code-files-$$" || return 1
    patches="$PATCH_WORDS --no-show-signature --no-notes"
    set --
    while IFS= read -r file; do
        case $file in
            '') continue ;;
            \"*) set -- && break ;; # with a tab or a line break in its name
        esac
        set -- "$@" "$file"
        [ "$#" -le "$COMPARED_PATHS" ] || { set -- && break; }
    done <"state/code-files-$$"
    run_git diff-tree -r $PATCH_WORDS --merge-base "${trunk:-$commit}" "$hash" -- >"state/code-files-$$" &&
        run_git log $patches --no-merges '--format=commit %H' "$hash" --not "$commit" $trunk -- >>"state/code-files-$$" &&
        run_git --literal-pathspecs log $patches --full-diff --no-merges '--format=commit %H' \
            --max-count="$((COMPARED_COMMITS + 1))" $others --not "$hash" -- "$@" >"state/code-others-$$" || return 1
    if [ $(($(cat "state/code-files-$$" "state/code-others-$$" | wc -c) + 0)) -le "$PATCH_BYTES" ] &&
        [ "$(grep -c '^commit ' "state/code-others-$$")" -le "$COMPARED_COMMITS" ]; then
        printf 'tip %s %s %s\n' "$hash" "$there" "${name#gone:}"
        run_git patch-id --stable <"state/code-files-$$" || return 1
        echo others
        run_git patch-id --stable <"state/code-others-$$" || return 1
    fi
    printf 'done %s\n' "$hash"
}
