# shellcheck shell=sh
# Which commits of a clone are on branches only: part of `hook`, which code.sh reads at a session's start.

BRANCH_SECONDS=0.1  # of each of three calls
BRANCH_COMMITS=200  # of branches, and as many to compare them with, as the server has it
BRANCH_BYTES=200000 # of what git says of them; of more nothing is told
BRANCH_MARGIN=86400 # how far clocks may differ
TRUNKS='--glob=refs/remotes/*/HEAD --glob=refs/remotes/*/main --glob=refs/remotes/*/master refs/heads/main refs/heads/master'

# ask_branches: begins to ask git, beside all else that is asked. `refs_told` is what was told last.
ask_branches() {
    branches_job=''
    [ ! -e "$common/shallow" ] || return 0 # there git cannot tell what is merged
    in_time="within $BRANCH_SECONDS"
    list_branches </dev/null &
    branches_job=$!
    in_time="within $READ_SECONDS"
}

# await_branches: `branches`, as a part of the request, and `refs`, which stands for all branches and the one that is checked out.
# What git does not say in time is not known: both are empty then, and the server forgets what it knew.
await_branches() {
    branches='' refs=''
    [ -n "$branches_job" ] && wait "$branches_job" || return 0
    IFS= read -r refs <"state/code-refs-$$"
    [ -e "state/code-unmerged-$$" ] || return 0
    if [ $(($(cat "state/code-unmerged-$$" "state/code-others-$$" | wc -c) + 0)) -le "$BRANCH_BYTES" ]; then
        branches=",\"branches\":{\"unmerged\":\"$(base64 <"state/code-unmerged-$$" | tr -d '\n')\""
        branches="$branches,\"others\":\"$(base64 <"state/code-others-$$" | tr -d '\n')\"}"
    fi
}

# list_branches: `refs` into a file, and where that or the commit is another one than was told, what git says of the newest commits
# that neither what is checked out nor a trunk has, and of those that may hold the same: all that these have since. No file's name
# begins with /.
# shellcheck disable=SC2086  # TRUNKS
list_branches() {
    run_git for-each-ref '--format=%(objectname) %(refname)' refs/heads refs/remotes >"state/code-refs-$$" || return 1
    refs="$(cksum <"state/code-refs-$$") $branch"
    printf '%s\n' "$refs" >"state/code-refs-$$" || return 1
    [ "$before $refs" != "$commit $refs_told" ] || return 0
    set -- log --ignore-missing --max-count="$BRANCH_COMMITS" --no-show-signature --no-color --no-notes --no-ext-diff --no-textconv \
        --no-renames --no-relative --ignore-submodules=all --name-only --decorate=full --decorate-refs=refs/heads \
        --decorate-refs=refs/remotes '--format=/%H %ct %P//%D'
    true >"state/code-others-$$"
    run_git "$@" --glob=refs/heads --glob=refs/remotes --not "$commit" $TRUNKS -- >"state/code-unmerged-$$" || return 1
    text=$(grep '^/' "state/code-unmerged-$$" | tail -n 1)
    [ -n "$text" ] || return 0
    text=${text#* }
    number "${text%% *}" 0
    run_git "$@" --max-age=$((n - BRANCH_MARGIN)) "$commit" $TRUNKS -- >"state/code-others-$$"
}
