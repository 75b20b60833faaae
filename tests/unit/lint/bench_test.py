# Does the benchmark of a peer that is not shipped read what that peer prints?
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "scripts" / "bench" / "gpu_llmc.py"


class Llmc(unittest.TestCase):
    """scripts/bench/gpu_llmc.py with a program that prints what llm.c prints."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def measure(self, steps, loss="10.987654", case="124m:2"):
        binary = self.folder / "train_gpt2cu"
        binary.write_text(f"""#!/bin/bash
echo "$@" >{self.folder}/arguments
[ "$(stat -c %s "$2")" = $((1024 + 2 * (4 * 2048 + 1))) ] || exit 3
echo "| num_layers L          | 12                                                 |"
echo "device memory usage: 1234 MiB / 81000 MiB"
echo "val loss 11.0"
for i in $(seq {steps}); do
  echo "step    $i/{steps} | loss {loss} (+0.12z)| norm 15.4000 (+nanz)| lr 1.00e-04 | $((i > 2 ? 20 : 900)).00 ms | 50.0% bf16 MFU | 1 tok/s"
done
""", encoding="utf-8")
        binary.chmod(0o755)
        command = [sys.executable, SCRIPT, "--binary", binary, "--case", case, "--steps", "10", "--warmup", "2", "--more", "-ge 2"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_tells_the_rate_of_the_steps_behind_the_warm_up(self):
        done = self.measure(12)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("124m:2: llm.c 102,400 tokens/s, median of 10 steps (102,400 - 102,400), 20.00 ms a step, 1234 MiB; loss 10.988",
                      done.stdout)
        arguments = (self.folder / "arguments").read_text(encoding="utf-8").split()
        for option, value in (("-e", "d12"), ("-b", "2"), ("-t", "1024"), ("-d", "2048"), ("-x", "12"), ("-ge", "2")):
            self.assertEqual(arguments[arguments.index(option) + 1], value)

    def test_refuses_what_is_no_measurement(self):
        self.assertIn("after 11 steps", self.measure(11).stderr)
        self.assertIn("the comparison is void", self.measure(12, loss="nan").stderr)
        self.assertEqual(self.measure(12, case="9b:1").returncode, 2)


if __name__ == "__main__":
    unittest.main()
