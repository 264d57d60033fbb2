#!/bin/bash
# One night: measure, then compare with the previous nights. The caller sets two variables:
#   CKPT_BIN      the directory of pytest and pytest-ckpt, such as /opt/ckpt/bin
#   CKPT_HISTORY  the directory that keeps every night, such as /var/lib/ckpt
# The script returns the exit code of the run. If the run returns 0 but the newest nights are slower by 10 % or more, it returns 1.
set -u
# If a run is refused at its start, the report of the previous night must not be published again.
rm -rf ckpt-report trend.html

"$CKPT_BIN/pytest" --ckpt-config=nightly.toml --ckpt-history="$CKPT_HISTORY"
code=$?
case $code in
0) ;;
1) echo "FAILED: a required requirement was not met, see ckpt-report/certificate.html" ;;
2) echo "INTERRUPTED: ckpt-report contains the results so far" ;;
4) echo "NOT STARTED: the message above says what to fix; no checkpoint was written" ;;
8) echo "INCOMPLETE: nothing failed, but a required check did not run" ;;
*) echo "BROKEN: exit code $code, see the lines above" ;;
esac
[ "$code" -eq 4 ] && exit 4

"$CKPT_BIN/pytest-ckpt" trend "$CKPT_HISTORY" --fail-on-regression=10% --html=trend.html
regression=$?
[ "$code" -ne 0 ] && exit "$code"
exit "$regression"
