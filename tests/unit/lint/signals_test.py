# Do the scripts that run programs wait for them, pass on every signal once, and end?
import os
import random
import signal
import subprocess
import sys
import time
import unittest

from scripts_test import SCRIPTS, Folder, run


class Wait(Folder):
    """scripts/wait.sh: what is told to a shell while it starts, waits or comes back reaches its child."""

    # Signals of the shell at about the time when it begins to wait; the child ends by the first one it gets.
    ROUNDS = """
    set -uo pipefail
    . {wait}
    hold TERM
    for round in $(seq {rounds}); do
      ( kill -TERM $$ ) &
      python3 -c 'import signal; signal.pause()' &
      await $!
      code=$?
      [ $code = 143 ] || {{ echo "round $round: $code"; exit 1; }}
    done
    echo "${{#held[@]}} left"
    """

    def test_no_signal_is_lost_that_comes_before_the_child_is_a_program(self):
        done = run("timeout", "60", "bash", "-c", self.ROUNDS.format(wait=SCRIPTS / "wait.sh", rounds=40))
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "0 left\n", ""))

    def test_the_exit_code_is_that_of_the_child_however_fast_it_ends(self):
        head = f". {SCRIPTS / 'wait.sh'}; "
        for code in (0, 7, 75):
            done = run("bash", "-c", head + f"(exit {code}) & await $!; echo $?; sh -c 'sleep 0.3; exit {code}' & await $!; echo $?")
            self.assertEqual((done.stdout, done.stderr), (f"{code}\n{code}\n", ""))


class Sweep(Folder):
    """scripts/sweep.sh with a stand-in for the program, which notes how it is called and prints the files of a folder."""

    TRIAL = """
import signal, sys, time
log = open(sys.argv[1], "a", buffering=1)
signals = []
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: (signals.append(number), log.write(f"{signal.Signals(number).name}\\n")))
print("ready", file=log)
while not signals: time.sleep(0.01)
time.sleep(float(sys.argv[2]))
sys.exit(75)
"""

    def sweep(self, states, commands=(), last=None, how="1 0 continue"):
        """The command of the script, of trials with these states and commands; `last`: their states at the end; `how`: what
        the sweep says about parallel, retries and on_failure."""
        (self.folder / "commands").write_text("".join(f"{command}\n" for command in commands), encoding="utf-8")
        for name, words in (("0", states), ("1", last or states)):
            text = "".join(f"{index}\tid\t{state}\n" for index, state in enumerate(words))
            (self.folder / name).write_text(text, encoding="utf-8")
        program = self.program("colossal-train", f'''cd "{self.folder}"; echo "$*" >>calls
case "$*" in *script*) echo "{how}"; paste 0 commands ;; *expand*) cat 1 ;; *) echo table ;; esac''')
        program["COLOSSAL_TRAIN"] = str(self.folder / "bin" / "colossal-train")
        return {"args": [str(SCRIPTS / "sweep.sh"), "s.yaml"], "env": program}

    def test_one_trial_that_has_not_finished_counts_however_many_there_are(self):
        many = 50000
        sweep = self.sweep(["finished"], last=["failed"] + ["finished"] * many)
        done = run(*sweep["args"], env=sweep["env"])
        self.assertEqual((done.returncode, done.stdout), (1, "table\n"), done.stderr)

    def test_accept_reaches_every_call_of_the_program(self):
        sweep = self.sweep(["finished"])
        self.assertEqual(run(*sweep["args"], "--accept", env=sweep["env"]).returncode, 0)
        calls = (self.folder / "calls").read_text(encoding="utf-8").splitlines()
        self.assertEqual([call.split()[1:4] for call in calls],
                         [[verb, "s.yaml", "--accept"] for verb in ("expand", "status", "expand")])

    def start(self, commands, logs, *options):
        """The running script with these trials, two at a time, in a group of processes of its own."""
        sweep = self.sweep(["pending"] * len(commands), commands, how="2 0 continue")
        for log in logs:
            log.write_text("", encoding="utf-8")
        return subprocess.Popen(sweep["args"] + list(options), env=sweep["env"], start_new_session=True, stdout=subprocess.PIPE, text=True)

    def end_of(self, script):
        """(exit code, output); fails if it does not end by itself."""
        try:
            out, _ = script.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(script.pid, signal.SIGKILL)
            self.fail("the sweep does not end")
        return script.returncode, out

    def trials(self):
        (self.folder / "trial.py").write_text(self.TRIAL, encoding="utf-8")
        logs = [self.folder / "first", self.folder / "second"]
        return logs, [f"{sys.executable} {self.folder}/trial.py {log} {seconds}" for log, seconds in zip(logs, (0.1, 0.6))]

    def await_ready(self, logs):
        deadline = time.monotonic() + 60
        while any("ready" not in log.read_text(encoding="utf-8") for log in logs):
            self.assertLess(time.monotonic(), deadline, "the trials do not start")
            time.sleep(0.02)

    def test_each_signal_reaches_each_trial_once_also_if_all_processes_get_it(self):
        logs, commands = self.trials()
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            with self.start(commands, logs) as script:
                self.await_ready(logs)
                os.killpg(script.pid, getattr(signal, name))
                code, out = self.end_of(script)
            self.assertEqual(code, 75, out)
            self.assertEqual([log.read_text(encoding="utf-8") for log in logs], ["ready\nSIGTERM\n"] * 2, name)

    def test_a_signal_at_any_time_ends_the_sweep(self):
        logs, commands = self.trials()
        draws = random.Random(5)
        for _ in range(12):  # trials end only when they are told
            with self.start(commands, logs) as script:
                time.sleep(draws.uniform(0.0, 0.4))
                os.killpg(script.pid, signal.SIGTERM)
                code, out = self.end_of(script)
            # Before the script has begun to answer signals, they end it.
            self.assertIn(code, (75, -signal.SIGTERM), out)

    def test_two_signals_end_a_trial_that_saves_without_end(self):
        (self.folder / "trial.py").write_text(self.TRIAL.replace("while not signals", "while len(signals) < 2"), encoding="utf-8")
        log = self.folder / "first"
        with self.start([f"{sys.executable} {self.folder}/trial.py {log} 0"], [log]) as script:
            self.await_ready([log])
            for _ in range(2):
                script.send_signal(signal.SIGTERM)
                time.sleep(0.5)
            code, out = self.end_of(script)
        self.assertEqual((code, log.read_text(encoding="utf-8")), (75, "ready\nSIGTERM\nSIGTERM\n"), out)

    def test_the_sweep_says_how_its_trials_are_run_and_options_beat_it(self):
        running = f"echo x >>{self.folder}/now; sleep 0.7; wc -l <{self.folder}/now >>{self.folder}/seen; exit 9"
        commands = [f"sh -c '{running}'"] * 4
        for how, options, tries, together in (("2 1 continue", [], 8, 2), ("1 0 stop", [], 1, 1), ("4 3 stop", ["--retries", "0", "--parallel", "1"], 1, 1),
                                              ("4 0 stop", ["--on-failure", "continue"], 4, 4), ("1 0 continue", ["--on-failure", "stop"], 1, 1)):
            for name in ("now", "seen"):
                (self.folder / name).write_text("", encoding="utf-8")
            sweep = self.sweep(["pending"] * 4, commands, last=["failed"] * 4, how=how)
            done = run(*sweep["args"], *options, env=sweep["env"])
            self.assertEqual(done.returncode, 1, done.stderr)
            seen = [int(line) for line in (self.folder / "seen").read_text(encoding="utf-8").split()]
            self.assertEqual((len(seen), max(seen[:together])), (tries, together), (how, options, done.stdout))

    def test_words_that_are_no_options_are_told(self):
        sweep = self.sweep(["finished"])
        for options, part in ((["--on-failure", "wait"], "'wait': give continue or stop"), (["--on-failure"], "give continue or stop"),
                              (["--stop-on-failure"], "unknown option"), (["--parallel", "0"], "give a number from 1")):
            done = run(*sweep["args"], *options, env=sweep["env"])
            self.assertEqual(done.returncode, 2)
            self.assertIn(part, done.stderr)


if __name__ == "__main__":
    unittest.main()
