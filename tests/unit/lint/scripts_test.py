# Do the scripts around the program keep their word: data preparation, installing, counting tests, plotting?
import contextlib
import hashlib
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "scripts"
sys.path.insert(0, str(SCRIPTS))

import test_report  # noqa: E402  (found through the line above)


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def program(self, name, text):
        """A stand-in for a program, first on PATH."""
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/bash\n" + text + "\n", encoding="utf-8")
        path.chmod(0o755)
        return {**os.environ, "PATH": f"{path.parent}:{os.environ['PATH']}"}


class Kjv(Folder):
    SCRIPT = SCRIPTS / "data" / "kjv.sh"

    def test_train_and_eval_are_the_whole_text_split_at_a_verse(self):
        done = run(self.SCRIPT, self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        train, held_out = ((self.folder / name).read_bytes() for name in ("train.txt", "eval.txt"))
        whole = run("bible", "-f", "gen1:1-rev22:21", stdin=subprocess.DEVNULL).stdout.encode()
        self.assertEqual(train + held_out, whole)
        self.assertTrue(train.endswith(b"\n") and held_out.endswith(b"\n"))
        self.assertFalse(set(train.splitlines()) & set(held_out.splitlines()))
        self.assertAlmostEqual(len(train) / len(whole), 0.95, delta=0.0002)
        self.assertNotIn(0, whole)
        for part in (train, held_out):
            self.assertIn(hashlib.sha256(part).hexdigest(), done.stdout)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["eval.txt", "train.txt"])

    def test_leaves_whole_files_alone_and_repairs_others(self):
        run(self.SCRIPT, self.folder)
        before = (self.folder / "train.txt").stat().st_mtime_ns
        self.assertEqual(run(self.SCRIPT, self.folder).stdout, "")
        self.assertEqual((self.folder / "train.txt").stat().st_mtime_ns, before)
        (self.folder / "eval.txt").write_text("cut\n", encoding="utf-8")
        self.assertIn("eval.txt", run(self.SCRIPT, self.folder).stdout)

    def test_refuses_a_text_that_is_not_whole(self):
        done = run(self.SCRIPT, self.folder / "out", env=self.program("bible", "echo 'Ge1:1 In the beginning'"))
        self.assertEqual(done.returncode, 4)
        self.assertIn("1 verses instead of 31102", done.stderr)
        self.assertEqual(list((self.folder / "out").iterdir()), [])


class Setup(Folder):
    def need(self, env):
        return run("bash", "-c", f"set -euo pipefail; . {SCRIPTS / 'setup.sh'}; need_packages git no-such-package-1 no-such-package-2", env=env)

    def test_without_root_prints_the_exact_command_and_stops(self):
        done = self.need(self.program("id", "echo 1000"))
        self.assertEqual(done.returncode, 9)
        self.assertIn("apt-get install -y --no-install-recommends no-such-package-1 no-such-package-2\n", done.stderr)

    def test_as_root_installs_what_is_missing_and_tries_again(self):
        self.program("id", "echo 0")
        self.program("sleep", "exit 0")
        env = self.program("apt-get", f'echo "$*" >> {self.folder}/calls; [ "$1" = update ] || [ "$(grep -c install {self.folder}/calls)" = 3 ]')
        done = self.need(env)
        self.assertEqual(done.returncode, 0, done.stderr)
        calls = (self.folder / "calls").read_text(encoding="utf-8").splitlines()
        install = "install -y --no-install-recommends no-such-package-1 no-such-package-2"
        self.assertEqual([call for call in calls if call != "update"], [install] * 3)
        self.assertIn("update", calls)

    def test_rejects_a_torch_dir_without_libtorch(self):
        done = run("bash", "-c", f". {SCRIPTS / 'setup.sh'}; need_torch", env={**os.environ, "TORCH_DIR": str(self.folder)})
        self.assertEqual(done.returncode, 9)
        self.assertIn("holds no lib/libtorch_cpu.so", done.stderr)

    def checkout(self, *scripts):
        """A checkout of our own with these scripts."""
        root = self.folder / "checkout"
        for script in ("setup.sh", *scripts):
            (root / "scripts").mkdir(parents=True, exist_ok=True)
            shutil.copy(SCRIPTS / script, root / "scripts" / script)
        return root

    def built(self, root, preset):
        program = root / "build" / preset / "colossal-train"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/bash\necho {preset} $*\nexit 3\n", encoding="utf-8")
        program.chmod(0o755)
        return str(program)

    def chosen(self, root, env):
        return run("bash", "-c", f". {root}/scripts/setup.sh; built_program", env=env).stdout.strip()

    def test_the_program_is_that_of_the_best_preset_or_the_one_there_is(self):
        root = self.checkout("sweep.sh", "wait.sh")
        self.program("nvcc", "exit 0")
        gpu = self.program("nvidia-smi", "echo GPU 0")
        gpu.pop("COLOSSAL_TRAIN", None)
        done = run("bash", "-c", f"set -euo pipefail; . {root}/scripts/setup.sh; program=$(built_program); echo on", env=gpu)
        self.assertEqual((done.returncode, done.stdout), (9, ""))
        self.assertIn("scripts/train.sh builds it", done.stderr)
        done = run(root / "scripts" / "sweep.sh", "s.yaml", env=gpu)
        self.assertEqual((done.returncode, done.stdout), (9, ""), done.stderr)
        cpu = self.built(root, "cpu")
        self.assertEqual(self.chosen(root, gpu), cpu)
        self.assertIn("builds: build/cpu is taken", run(root / "scripts" / "sweep.sh", "s.yaml", env=gpu).stderr)
        cuda = self.built(root, "cuda")
        self.assertEqual(self.chosen(root, gpu), cuda)
        self.program("nvidia-smi", "exit 1")
        self.assertEqual(self.chosen(root, gpu), cpu)

    def test_a_sweep_runs_the_program_that_is_built_or_the_one_named(self):
        root = self.checkout("sweep.sh", "wait.sh")
        self.built(root, "cuda")
        sweep = root / "scripts" / "sweep.sh"
        env = {name: value for name, value in os.environ.items() if name != "COLOSSAL_TRAIN"}
        for more, said in (({}, "cuda"), ({"COLOSSAL_TRAIN": self.built(root, "other")}, "other")):
            # The stand-in is asked for the trials first, and its exit code is that of the script.
            done = run("bash", "-x", sweep, "s.yaml", env={**env, **more})
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn(f"build/{said}/colossal-train sweep expand s.yaml", done.stderr)

    def test_goes_on_without_headers_that_only_builds_for_gpus_read(self):
        root = self.checkout()
        python = root / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/bash\necho "$*" >> {self.folder}/pip\nexit 1\n', encoding="utf-8")
        python.chmod(0o755)
        line = f"set -euo pipefail; . {root}/scripts/setup.sh; need_requirements() {{ :; }}; need_torch; echo on"
        env = {name: value for name, value in os.environ.items() if name != "TORCH_DIR"}
        done = run("bash", "-c", line, env={**env, "PATH": "/usr/bin:/bin", "CUDA_HOME": str(self.folder)})
        self.assertEqual((done.stdout, done.stderr), ("on\n", ""))
        self.assertFalse((self.folder / "pip").exists())
        env["PATH"] = self.program("nvcc", "exit 0")["PATH"]
        done = run("bash", "-c", line, env=env)
        self.assertEqual(done.stdout, "on\n", done.stderr)
        self.assertIn("--no-deps nvidia-cudnn-frontend==", (self.folder / "pip").read_text(encoding="utf-8"))
        self.assertEqual(done.stderr.count("\n"), 2, done.stderr)
        self.assertIn("without nvidia-cudnn-frontend", done.stderr)

    def test_the_lock_gives_back_the_exit_code_and_is_free_again(self):
        shutil.copy(SCRIPTS / "setup.sh", self.folder / "setup.sh")
        (self.folder / "scripts").mkdir()
        (self.folder / "setup.sh").rename(self.folder / "scripts" / "setup.sh")
        head = f"set -uo pipefail; . {self.folder}/scripts/setup.sh; "
        for code in (0, 7):
            done = run("bash", "-c", head + f"with_lock bash -c 'exit {code}'; echo $?; with_lock echo free")
            self.assertEqual((done.returncode, done.stdout), (0, f"{code}\nfree\n"), done.stderr)
        self.assertEqual(run("bash", "-c", "set -e; " + head + "with_lock false; echo on").stdout, "")

    def test_what_fails_first_ends_the_setup_also_where_the_shell_does_not(self):
        head = f". {SCRIPTS / 'setup.sh'}; need_packages() {{ return 5; }}; for f in need_versions need_torch need_requirements; do eval \"$f() {{ echo $f; }}\"; done; "
        for function in ("setup_build", "setup_tests"):
            done = run("bash", "-euo", "pipefail", "-c", head + f"with_lock {function} || echo $?")
            self.assertEqual(done.stdout, "5\n", done.stderr)


class Test(Folder):
    """Functions of scripts/test.sh, which cannot be sourced: it runs."""

    def function(self, name):
        lines = (SCRIPTS / "test.sh").read_text(encoding="utf-8")
        return lines[lines.index(f"\n{name}() {{") + 1:].split("\n}\n")[0] + "\n}\n"

    def test_a_report_that_was_never_written_is_a_failure(self):
        functions = "passed=0; failed=0\n" + self.function("count") + self.function("count_or_fail")
        for counts, expected in (("3 1", "3 1"), ("", "0 1")):
            done = run("bash", "-uo", "pipefail", "-c", functions + f'read -ra c <<<"{counts}"; count_or_fail "${{c[@]}}"; echo $passed $failed')
            self.assertEqual((done.stdout, done.stderr), (expected + "\n", ""))

    def test_a_lint_that_says_nothing_fails(self):
        (self.folder / "scripts" / "lint").mkdir(parents=True)
        lints = self.folder / "scripts" / "lint" / "all.sh"
        functions = "passed=0; failed=0; heading() { :; }\n" + "".join(self.function(name) for name in ("count", "count_or_fail", "start_lint", "lint"))
        for text, expected in (("lint: 12 passed, 1 failed", "12 1"), ("Segmentation fault", "0 1"), ("", "0 1")):
            lints.write_text(f"#!/bin/bash\necho '{text}'\n", encoding="utf-8")
            lints.chmod(0o755)
            done = run("bash", "-uo", "pipefail", "-c", functions + "start_lint; lint >/dev/null; echo $passed $failed", cwd=self.folder)
            self.assertEqual((done.stdout, done.stderr), (expected + "\n", ""))


class Train(Folder):
    def test_without_config_prints_usage(self):
        done = run(SCRIPTS / "train.sh")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("usage: scripts/train.sh CONFIG", done.stderr)

    def test_finds_the_config_behind_options_and_their_values(self):
        lines = (SCRIPTS / "train.sh").read_text(encoding="utf-8")
        function = lines[lines.index("config_of() {"):].split("\n}\n")[0] + "\n}\n"
        for arguments, expected in ((["a.yaml", "--nproc", "2"], "a.yaml"),
                                    (["--set", "train.steps=3", "a.yaml"], "a.yaml"),
                                    (["--nproc=2", "--dry-run", "--resume", "b", "-q", "a.yaml", "--set", "x=1"], "a.yaml"),
                                    (["--overwrite", "--output-dir", "runs/x", "my file.yaml"], "my file.yaml"),
                                    (["--diagnostics", "json", "a.yaml"], "a.yaml"),
                                    (["--color", "never", "--launch", "slurm", "--master-addr", "h", "--master-port", "1", "a.yaml"], "a.yaml"),
                                    (["--rendezvous", "file:r", "--max-restarts", "3", "--restart-delay", "1", "a.yaml"], "a.yaml"),
                                    (["--dry-run", "--", "a.yaml"], "a.yaml"), (["--", "-odd.yaml"], "-odd.yaml"), (["--"], ""),
                                    (["--dry-run", "--set"], ""), (["--set", "a.yaml"], "")):
            done = run("bash", "-euo", "pipefail", "-c", function + 'config_of "$@"', "-", *arguments)
            self.assertEqual((done.returncode, done.stdout.strip(), done.stderr), (0, expected, ""), arguments)


class Sample(Folder):
    """scripts/train.sh with a stand-in for the program, which notes how it is called."""

    SUMMARY = '{"reason":"finished","checkpoint":"runs/a b/checkpoints/step-00000002"}'

    def setUp(self):
        super().setUp()
        (self.folder / "scripts").mkdir()
        for name in ("train.sh", "setup.sh", "wait.sh"):
            shutil.copy(SCRIPTS / name, self.folder / "scripts" / name)
        with (self.folder / "scripts" / "setup.sh").open("a", encoding="utf-8") as setup:
            setup.write("setup_build() { :; }\nconfigure() { :; }\nbuild() { :; }\n")
        self.stand_in(f"echo '{self.SUMMARY}'")

    def stand_in(self, training):
        (self.folder / "build" / "cpu").mkdir(parents=True, exist_ok=True)
        program = self.folder / "build" / "cpu" / "colossal-train"
        program.write_text('#!/bin/bash\nprintf "%s\\n" "$*" >>"$0.calls"\n'
                           f'if [ "$1" = generate ]; then echo "And so on"; exit; fi\n{training}\n', encoding="utf-8")
        program.chmod(0o755)

    def config(self, *comments, encoding="utf-8", newline=None):
        path = self.folder / "a.yaml"
        path.write_text("".join(f"# {comment}\n" for comment in comments) + "version: 1\n", encoding=encoding, newline=newline)
        return path

    def train(self, *arguments, **options):
        return run(self.folder / "scripts" / "train.sh", *arguments, **options)

    def calls(self):
        return (self.folder / "build" / "cpu" / "colossal-train.calls").read_text(encoding="utf-8").splitlines()

    def test_a_run_ends_with_a_text_by_the_model_it_made(self):
        config = self.config("sample: And God said", "more", encoding="utf-8-sig", newline="\r\n")  # as other systems do
        done = self.train(config, "--nproc", "1")
        self.assertEqual((done.returncode, done.stdout), (0, self.SUMMARY + "\n"), done.stderr)
        self.assertTrue(done.stderr.endswith("\nAnd so on\n"), done.stderr)
        training, sampling = self.calls()
        self.assertEqual(training, f"train {config} --nproc 1")
        self.assertIn("generate --checkpoint runs/a b/checkpoints/step-00000002 --prompt And God said ", sampling)

    def test_options_of_its_own_come_before_those_that_end_options(self):
        for comment in ("sample: And", "more"):
            self.train("--", self.config(comment))
        trainings = [call for call in self.calls() if call.startswith("train")]
        self.assertEqual(trainings, [f"train --nproc auto -- {self.folder}/a.yaml"] * 2)

    def test_started_by_a_launcher_it_is_one_of_its_processes(self):
        config = self.config("sample: And")
        for name in ("RANK", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_ID"):
            self.train(config, env={**os.environ, name: "0"})
        self.assertEqual(self.calls(), [f"train {config}"] * 4)

    def test_a_failed_setup_or_build_ends_the_script(self):
        for function in ("setup_build", "configure", "build"):
            with (self.folder / "scripts" / "setup.sh").open("a", encoding="utf-8") as setup:
                setup.write(f"{function}() {{ return 9; }}\n")
            done = self.train(self.config())
            self.assertEqual((done.returncode, done.stdout), (9, ""), done.stderr)
            with (self.folder / "scripts" / "setup.sh").open("a", encoding="utf-8") as setup:
                setup.write(f"{function}() {{ :; }}\n")
        self.assertFalse((self.folder / "build" / "cpu" / "colossal-train.calls").exists())

    def test_no_text_is_made_of_a_dry_run_or_without_being_asked_for(self):
        self.train(self.config("sample: And"), "--dry-run")
        self.train(self.config("no sample: And"))
        self.assertEqual([call.split()[0] for call in self.calls()], ["train", "train"])

    def test_no_text_is_made_where_nothing_was_saved_or_the_run_failed(self):
        self.stand_in("echo '{\"checkpoint\":\"\"}'")
        self.assertEqual(self.train(self.config("sample: And")).returncode, 0)
        self.stand_in("echo partial; exit 7")
        done = self.train(self.config("sample: And"))
        self.assertEqual((done.returncode, done.stdout), (7, "partial\n"))
        self.assertEqual([call.split()[0] for call in self.calls()], ["train", "train"])

    def test_signals_reach_the_run_once_and_its_exit_code_counts(self):
        codes = {"INT": 130, "TERM": 143, "HUP": 129, "QUIT": 131, "USR1": 75, "USR2": 138}
        self.stand_in("".join(f'trap "echo {name}; exit {code}" {name}\n' for name, code in codes.items()) +
                      'echo ready >&2\nfor _ in {1..600}; do sleep 0.05; done')
        for name, code in codes.items():
            with subprocess.Popen([self.folder / "scripts" / "train.sh", self.config("sample: And")],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as script:
                self.assertEqual(script.stderr.readline(), "ready\n")
                script.send_signal(getattr(signal, f"SIG{name}"))
                out, _ = script.communicate(timeout=20)
            self.assertEqual((script.returncode, out), (code, f"{name}\n"))


class Bundle(Folder):
    def setUp(self):
        super().setUp()
        lines = (SCRIPTS / "gpu_bundle.sh").read_text(encoding="utf-8")
        starter = self.folder / "run"
        starter.write_text(lines.split("<<'STARTER'\n")[1].split("\nSTARTER\n")[0] + "\n", encoding="utf-8")
        starter.chmod(0o755)
        self.program("colossal-train", 'echo "$0 $*"')
        self.env = {**self.program("python3", "echo /packages"), "XDG_CACHE_HOME": str(self.folder / "cache")}
        subprocess.run(["tar", "-czf", self.folder / "programs.tar.gz", "-C", self.folder, "bin"], check=True)

    def test_unpacks_to_the_users_own_cache_and_starts_nothing_of_others(self):
        done = [run(self.folder / "run", "colossal-train", "a b", env=self.env) for _ in range(2)]
        unpacked, = (self.folder / "cache").iterdir()
        self.assertEqual([(one.returncode, one.stdout) for one in done], [(0, f"{unpacked}/bin/colossal-train a b\n")] * 2, done)
        if os.getuid() == 0:  # others cannot give folders away
            os.chown(unpacked, 1, 1)
            other = run(self.folder / "run", "colossal-train", env=self.env)
            self.assertEqual((other.returncode, other.stdout), (9, ""))
            self.assertIn("belongs to another user", other.stderr)


class Tokenizers(unittest.TestCase):
    def test_the_comparison_fails_if_few_lines_were_compared(self):
        stand_ins = {name: unittest.mock.MagicMock() for name in ("numpy", "real_text", "tokenizer_ids")}
        stand_ins["tokenizer_ids"].ids_of = lambda _, texts: [[1]] * len(texts)
        path = [*sys.path, str(SCRIPTS / "golden")]
        with unittest.mock.patch.dict(sys.modules, stand_ins), unittest.mock.patch("sys.path", path):
            import compare_tokenizers
        for count, expected in ((10000, True), (9999, False)):
            with unittest.mock.patch.object(compare_tokenizers, "prepared", lambda *call: [[1]] * (count if call[4] == "line" else 1)), \
                 contextlib.redirect_stdout(io.StringIO()) as out:
                self.assertEqual(compare_tokenizers.compare("gpt2", "", "", None, ["a"] * count, None), expected)
            self.assertEqual("at least 10000 lines" in out.getvalue(), not expected)


class Report(unittest.TestCase):
    @staticmethod
    def log(*programs):
        return "".join(f"{i}/9 Testing: t{i}\nOutput:\n{output}\n<end of output>\n{'Test Passed.' if good else 'Test Failed.'}\n"
                       for i, (output, good) in enumerate(programs, 1))

    def test_adds_test_cases_of_all_programs(self):
        log = self.log(("All tests passed (1,234 assertions in 12 test cases)", True),
                       ("test cases:  5 |  3 passed | 2 failed\nassertions: 9 | 7 passed | 2 failed", False),
                       ("Ran 7 tests in 0.1s\n\nFAILED (failures=1, errors=2)", False))
        self.assertEqual(test_report.count(log), (12 + 3 + 4, 2 + 3))

    def test_counts_crashes_and_empty_programs_as_failures(self):
        self.assertEqual(test_report.count(self.log(("Segmentation fault", False))), (0, 1))
        self.assertEqual(test_report.count(self.log(("No tests ran", True))), (0, 1))
        self.assertEqual(test_report.count(self.log(("All tests passed (2 assertions in 1 test case)", False))), (1, 1))

    def test_names_the_slowest_objects(self):
        log = "# ninja log v5\n0\t1500\t1\ta.o\th\n0\t9000\t1\tprogram\th\n1500\t9500\t1\tb.o\th\n"
        self.assertEqual(test_report.slowest(log), [(8.0, "b.o"), (1.5, "a.o")])


class Plot(Folder):
    SCRIPT = SCRIPTS / "plot" / "loss.py"

    def plot(self, lines):
        metrics = self.folder / "metrics.jsonl"
        metrics.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
        return run(sys.executable, self.SCRIPT, self.folder, "-o", self.folder / "loss.svg")

    def test_draws_train_and_eval_and_keeps_the_last_record_of_a_step(self):
        done = self.plot([{"kind": "train", "step": 1, "loss": 5.0}, {"kind": "train", "step": 2, "loss": 9.0},
                          {"kind": "resume", "step": 1}, {"kind": "train", "step": 2, "loss": 4.0},
                          {"kind": "eval", "step": 2, "loss": 4.5}, '{"kind": "train", "st'])
        self.assertEqual(done.returncode, 0, done.stderr)
        svg = xml.etree.ElementTree.parse(self.folder / "loss.svg")
        lines = svg.findall("{http://www.w3.org/2000/svg}polyline")
        self.assertEqual([len(line.get("points").split()) for line in lines], [2, 1])
        self.assertIn("last 4.0000", (self.folder / "loss.svg").read_text(encoding="utf-8"))

    def test_says_what_is_missing(self):
        self.assertIn("no train or eval record", self.plot([{"kind": "resume", "step": 1}]).stderr)
        self.assertIn("does not exist", run(sys.executable, self.SCRIPT, self.folder / "none").stderr)


if __name__ == "__main__":
    unittest.main()
