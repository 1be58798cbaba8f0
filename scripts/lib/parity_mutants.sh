# Applies the faults of tests/mutants to a copy of this tree, one at a time, and runs the parity tests on each. Called by scripts/parity
# with the names of those wanted, or none for all. A mutant that no test notices is an error, as is a patch that doesn't apply.
# A patch with a line "Tests: PROGRAM" is a fault that another program than test_parity must notice.
set -euo pipefail
source scripts/lib/packages.sh

tree=build/mutants
log=build/mutants.log

copy_tree() {
  mkdir -p "$tree"
  find "$tree" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
  # Touched: what an interrupted run changed and this puts back must be compiled again.
  git ls-files -z --cached --others --exclude-standard | tar -c --null --ignore-failed-read -T - 2>/dev/null | tar -x -m -C "$tree"
}

run_tests() { OMP_NUM_THREADS=1 "$tree/build/release/tests/$1" --gtest_brief=1 >"$log" 2>&1; }
build_tests() { ninja -C "$tree/build/release" -j "$(nproc)" "$1" >"$log" 2>&1; }
program_of() {
  local named
  named=$(sed -n 's/^Tests: //p' "$1")
  echo "${named:-test_parity}"
}

# Prints how the tests of program $1 failed, in one line; fails if they didn't, or ended otherwise than by a test that failed.
caught() {
  local status=0
  run_tests "$1" || status=$?
  ((status == 0)) && { echo "survives: all tests pass"; return 1; }
  grep -q '^\[  FAILED  \]' "$log" || { echo "ends the tests with status $status: $(tail -n 1 "$log")"; return 1; }
  local cases first
  cases=$(grep -cE '^(decoder|perception|salm|ctc) dp[0-9]' "$log" || true)
  first=$(grep -m 1 -E '^(decoder|perception|salm|ctc) dp[0-9]' "$log" || grep -m 1 -A 3 ': Failure$' "$log" | tail -n 1)
  echo "$cases cases of $(sed -n 's/^\[  FAILED  \] \([^ ,]*\).*/\1/p' "$log" | sort -u | paste -sd ' '), the first: ${first:0:220}"
}

copy_tree
# What mutants change is compiled one file at a time, the rest as scripts/test does: then the compile cache may have it.
(cd "$tree" && cmake --preset release -DCHORUS_CUDA=OFF -DCHORUS_WERROR=ON "-DCHORUS_UNITY=chorus_core;chorus_tensor;test_parity") >"$log" 2>&1 || { cat "$log"; exit 1; }
wanted=("$@")
((${#wanted[@]})) || { wanted=(tests/mutants/*.patch); wanted=("${wanted[@]#tests/mutants/}"); wanted=("${wanted[@]%.patch}"); }
for name in "${wanted[@]}"; do
  [[ -f tests/mutants/$name.patch ]] || { echo "scripts/parity mutants: there is no tests/mutants/$name.patch" >&2; exit 2; }
  program_of "tests/mutants/$name.patch"
done >"$log.programs"
while read -r program; do
  build_tests "$program" || { tail -n 30 "$log"; exit 1; }
  run_tests "$program" || { tail -n 30 "$log"; echo "scripts/parity mutants: $program fails without any mutant" >&2; exit 1; }
done < <(sort -u "$log.programs")
begin=$SECONDS count=0 survived=()
for name in "${wanted[@]}"; do
  patch=tests/mutants/$name.patch
  program=$(program_of "$patch")
  said=
  if ! patch -d "$tree" -p1 -F0 -s --no-backup-if-mismatch <"$patch" >"$log" 2>&1; then
    said="doesn't apply any more: $(head -n 1 "$log")"
    copy_tree  # some of it may have
  else
    if ! build_tests "$program"; then
      said="doesn't compile: $(grep -m 1 -E 'error|FAILED' "$log")"
    elif ! how=$(caught "$program"); then
      said=$how
    fi
    patch -d "$tree" -R -p1 -F0 -s --no-backup-if-mismatch <"$patch"
  fi
  if [[ $said ]]; then
    survived+=("$name")
    echo "NOT CAUGHT $name: $said"
  else
    count=$((count + 1))
    echo "caught $name: $how"
  fi
done
echo "figure parity.mutants ${#wanted[@]}"
echo "figure parity.mutants_caught $count"
echo "figure parity.mutants_seconds $((SECONDS - begin)) s"
((${#survived[@]} == 0)) || { echo "not caught: ${survived[*]}" >&2; exit 1; }
