// What can be said to the commands that use the model: train, plan, estimate, eval?
#include "commands.hpp"
#include "config/help.hpp"
#include "infer/exchange.hpp"

#include <memory>
#include <string>
#include <vector>

namespace colossal {
namespace {

void add_launch(CLI::App* command, LaunchFlags& launch) {
  add_option(command,
             "--launch",
             launch.mode,
             "whose variables tell the rank: auto (default; the first that is found), single, "
             "torchrun, openmpi, pmi or slurm",
             "MODE")
      ->check(CLI::IsMember({"auto", "single", "torchrun", "openmpi", "pmi", "slurm"}));
  add_option(command,
             "--master-addr",
             launch.master_addr,
             "mpirun, mpiexec, srun: the machine of rank 0",
             "HOST");
  add_option(command,
             "--master-port",
             launch.master_port,
             "mpirun, mpiexec, srun: the port on which rank 0 listens",
             "PORT")
      ->check(CLI::Range(1, 65535));
  add_option(command,
             "--rendezvous",
             launch.rendezvous,
             "mpirun, mpiexec, srun: a file on a shared disk by which ranks find rank 0",
             "file:PATH");
}

/// What --allow accepts: data.fingerprint, what an epoch may not change inside, and the keys of
/// which the registry says so.
std::vector<std::string> allowable_keys() {
  std::vector<std::string> keys = {"data.fingerprint", "data.shuffle", "run.seed"};
  for (const detail::KeyDoc& doc : detail::key_docs()) {
    if (!doc.section && doc.resume == ResumeClass::allow) {
      keys.push_back(doc.path);
    }
  }
  return keys;
}

void add_restarts(CLI::App* command, TrainOptions& options) {
  add_option(command,
             "--max-restarts",
             options.max_restarts,
             "with --nproc: how often the run is continued after a process was lost or killed "
             "(default 0)",
             "K")
      ->check(CLI::Range(0, 1000));
  // For tests; no group: not in the help.
  add_option(command,
             "--restart-delay",
             options.restart_delay_seconds,
             "seconds before the first restart; each later one waits twice as long",
             "SECONDS")
      ->check(CLI::Range(0.0, 1e5))
      ->group("");
}

void add_train(CommandLine& line) {
  CLI::App* command = add_command(line.app,
                                  "train",
                                  "train, or continue a run",
                                  "colossal-train train configs/tiny-cpu.yaml --nproc 2 --set "
                                  "train.steps=100");
  const auto options = std::make_shared<TrainOptions>();
  add_config(line, command, options->config);
  add_diagnostics(line, command, options->config.json_diagnostics);
  add_option(command, "--run-time", options->config.run_time, "value of ${run.time}", "TIME")
      ->group("");  // hidden: the launcher hands it to its ranks
  add_nproc(command, options->nproc);
  add_option(command,
             "--resume",
             options->resume,
             "auto (default), never, require, or a checkpoint to continue from",
             "auto|never|require|PATH");
  add_option(command, "--output-dir", options->output_dir, "run directory (run.output_dir)", "DIR");
  command->add_flag(
      "--overwrite", options->overwrite, "start anew; an old run directory moves to NAME.old-<k>");
  command->add_flag("--dry-run", options->dry_run, "check and build everything, train no step");
  add_launch(command, options->launch);
  command->add_flag("--use-job-deadline",
                    options->use_job_deadline,
                    "stop, as at run.max_time, before the Slurm job ends (SLURM_JOB_END_TIME)");
  add_restarts(command, *options);
  add_repeated(command,
               "--allow",
               options->allow,
               "accept this difference on resume (repeatable): train.global_batch_size, keys of "
               "train.batch_ramp, data.fingerprint, data.shuffle or run.seed",
               "KEY")
      ->check(CLI::IsMember(allowable_keys())
                  .description("{train.global_batch_size,data.fingerprint}"));  // all are too wide
  set_action(line, command, [&line, options] {
    options->arguments = line.arguments;
    options->log_level = line.log_level;
    options->export_weights = [](const WeightsExport& wanted) {
      export_weights(
          {.checkpoint = wanted.checkpoint, .output = wanted.file, .dtype = wanted.dtype});
    };
    return run_train(*options);
  });
}

void add_gpu_memory(CLI::App* command, std::optional<std::string>& size) {
  add_option(command,
             "--gpu-memory",
             size,
             "bytes that the device of each process has, in place of run.device_memory: 80GiB",
             "SIZE");
}

void add_plan(CommandLine& line) {
  CLI::App* command =
      add_command(line.app,
                  "plan",
                  "say what a run would do and need: mesh, batches, steps, memory",
                  "colossal-train plan configs/gpt-kjv-cpu.yaml --world-size 2 --format json");
  const auto options = std::make_shared<PlanOptions>();
  add_config(line, command, options->config);
  add_diagnostics(line, command, options->config.json_diagnostics);
  add_world_size(command, options->world_size, "number of processes to plan for");
  add_format(command, options->json);
  add_option(command, "--lr-plot", options->lr_plot, "draw the learning rate (SVG)", "FILE");
  add_gpu_memory(command, options->gpu_memory);
  command->add_flag("--strict", options->strict, "a plan that does not fit is an error (exit 3)");
  set_action(line, command, [options] { return run_plan(*options); });
}

void add_estimate(CommandLine& line) {
  CLI::App* command =
      add_command(line.app,
                  "estimate",
                  "memory of a run in other layouts: which of them fit",
                  "colossal-train estimate configs/gpt2-124m-cpu.yaml --world-size 1,2,4,8 "
                  "--sweep-parallel --gpu-memory 8GiB");
  const auto options = std::make_shared<EstimateOptions>();
  add_config(line, command, options->config);
  add_diagnostics(line, command, options->config.json_diagnostics);
  add_option(command, "--world-size", options->worlds, "numbers of processes", "N,N,...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20U));
  command->add_flag("--sweep-parallel",
                    options->sweep_parallel,
                    "vary ZeRO, Gemini, micro-batch and recomputation, too");
  add_gpu_memory(command, options->gpu_memory);
  add_format(command, options->json);
  set_action(line, command, [options] { return run_estimate(*options); });
}

void add_eval(CommandLine& line) {
  CLI::App* command = add_command(line.app,
                                  "eval",
                                  "loss of a checkpoint on the evaluation data",
                                  "colossal-train eval --checkpoint runs/tiny-cpu --nproc 2");
  const auto options = std::make_shared<EvalOptions>();
  add_checkpoint(line, command, options->checkpoint);
  add_option(command,
             "--config",
             options->config,
             "use this configuration instead of the stored one",
             "CONFIG");
  add_overrides(command, options->more);
  add_nproc(command, options->nproc);
  add_launch(command, options->launch);
  set_action(line, command, [&line, options] {
    options->arguments = line.arguments;
    options->log_level = line.log_level;
    return run_eval(*options);
  });
}

}  // namespace

void add_run_commands(CommandLine& line) {
  add_train(line);
  add_plan(line);
  add_estimate(line);
  add_eval(line);
}

}  // namespace colossal
