# Sourced by scripts/parity: the demo's first steps on one rank, on two threads and on two processes.
# AdamW's eps is large: where a gradient is zero but for rounding, a small one makes whole steps of the noise.

demo_losses() { # output folder, steps, precision, what runs chorus ...
  local out=$1 steps=$2 precision=$3
  shift 3
  rm -rf "$out"
  "$@" build/release/apps/chorus train configs/demo.toml trainer.output_dir="$out" trainer.stop_after_steps="$steps" \
    trainer.precision="$precision" optimizer.eps=1e-3 "${demo_ranks[@]}" > "$out.log" || { cat "$out.log" >&2; return 1; }
  # The loss of each step, in full.
  sed -n 's/^{.*"step":\([0-9]*\).*"loss":\([-+0-9.e]*\).*/\1 \2/p' "$out/metrics.jsonl"
}

demo_parity() {
  local folder=build/parity_demo limit steps precision name
  mkdir -p "$folder" data
  zcat "$(packaged_file asterisk-core-sounds-en /usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz)" >data/core-sounds-en.txt
  build/release/apps/chorus data asterisk --texts data/core-sounds-en.txt --sounds /usr/share/asterisk/sounds/en_US_f_Allison \
    --out data/asterisk >"$folder/data.log"
  # As root Open MPI wants to be asked twice, and more ranks than cores need leave.
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  for precision in fp32 fp64; do
    [[ $precision == fp32 ]] && steps=50 limit=1e-4 || steps=20 limit=1e-10
    demo_ranks=()
    demo_losses "$folder/one" "$steps" "$precision" env > "$folder/one.txt"
    for name in threads processes tp; do
      local launcher=(env)
      demo_ranks=()
      case $name in
        threads) demo_ranks=(--ranks 2) ;;
        processes) launcher=(mpirun --oversubscribe -n 2) ;;
        tp) demo_ranks=(--ranks 2 parallel.tp_size=2 parallel.sequence_parallel=true) ;;
      esac
      demo_losses "$folder/$name" "$steps" "$precision" "${launcher[@]}" > "$folder/$name.txt"
      join <(sort "$folder/one.txt") <(sort "$folder/$name.txt") | awk -v want="$steps" -v limit="$limit" -v name="$precision.$name" '
        { d = ($3 - $2) / $2; if (d < 0) d = -d; if (d > worst) worst = d; ++n }
        END {
          printf "figure parity.demo.%s %.2g\n", name, worst
          if (n != want || !(worst <= limit)) { printf "%s: %d of %d steps, %.2g is more than %s\n", name, n, want, worst, limit; exit 1 }
        }' || demo_failed=1
    done
  done
  return "${demo_failed:-0}"
}
