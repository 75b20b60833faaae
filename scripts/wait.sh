# shellcheck shell=bash
# How does a script wait for a process and still answer signals? By looking again and again: `wait` sleeps on if a signal
# comes just before it does, and its trap then runs only after the process has ended. Sourced by train.sh and sweep.sh.

exec {wait_tick}<> <(:) # nothing ever comes out of it

# pause: a tenth of a second, after which traps have run; no process is started for it.
pause() { read -rt 0.1 -u "$wait_tick" _ || :; }

held=()

# hold SIGNAL...: from now on these signals of the script wait for await.
hold() {
  local name
  for name in "$@"; do
    # shellcheck disable=SC2064
    trap "held+=($name)" "$name"
  done
}

# await PID: waits for a child of this shell, hands it each signal in `held` once, and returns its exit code. A child that has
# not become its program yet would lose them: until then it has this shell's traps.
await() {
  local child=$1 own name
  read -r own <"/proc/$BASHPID/comm"
  while kill -0 "$child" 2>/dev/null; do
    if [ ${#held[@]} -gt 0 ] && read -r name 2>/dev/null <"/proc/$child/comm" && [ "$name" != "$own" ]; then
      kill "-${held[0]}" "$child" 2>/dev/null
      held=("${held[@]:1}")
    else
      pause
    fi
  done
  wait "$child"
}
