#!/bin/sh
# expect.sh STATUS TEXT COMMAND...: whether a command ends with STATUS ("error": any but 0) and says TEXT.
wanted=$1 text=$2
shift 2
output=$("$@" 2>&1)
status=$?
printf '%s\n' "$output"
case $wanted in
  error) [ "$status" -ne 0 ] ;;
  *) [ "$status" -eq "$wanted" ] ;;
esac || { echo "ended with status $status, not $wanted"; exit 1; }
printf '%s\n' "$output" | grep -qF "$text" || { echo "did not say: $text"; exit 1; }
