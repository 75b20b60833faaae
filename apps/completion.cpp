// How do shells learn the commands? A script for bash, zsh or fish, made from the command line's
// own definitions.
#include "commands.hpp"
#include "config/explain.hpp"
#include "help_formatter.hpp"
#include "train/examples.hpp"

#include <fmt/format.h>

#include <memory>

namespace colossal {
namespace {

/// What may stand in one place of the command line.
struct Values {
  std::vector<std::string> words;
  bool files = false;
  bool keys = false;  ///< key paths of a configuration
};

struct OptionWords {
  std::vector<std::string> names;  ///< "--nproc", "-o"
  std::string help;
  bool takes_value = false;
  Values values;
};

struct CommandWords {
  std::string path;  ///< "config show"; "" for the program
  std::string help;
  std::vector<std::string> commands;
  std::vector<OptionWords> options;
  Values arguments;
};

/// "auto|never|PATH" -> its lower-case words and whether files are meant; "{a,b}" -> a, b.
Values values_of(const std::string& kind) {
  Values values;
  std::string word;
  const auto take = [&] {
    const bool lower = !word.empty() && word[0] >= 'a' && word[0] <= 'z';
    values.files = values.files || word == "PATH" || word == "FILE" || word == "DIR" ||
                   word == "CONFIG" || word == "A" || word == "B" || word == "OTHER";
    values.keys = values.keys || word == "KEY=VALUE" || word == "KEY";
    if (lower) {
      values.words.push_back(word);
    }
    word.clear();
  };
  for (const char c : kind) {
    if (c == '|' || c == '{' || c == '}' || c == ',' || c == ':' || c == ' ') {
      take();
    } else {
      word += c;
    }
  }
  take();
  values.keys = values.keys && values.words.empty();  // `--allow KEY` has words of its own
  return values;
}

Values argument_of(const std::string& command, const CLI::Option& option) {
  Values values = values_of(option.get_name() + ":" + option.get_type_name());
  values.files = values.files || command == "config explain";  // CONFIG KEY
  if (command == "config init") {
    for (const Example& example : examples()) {
      values.words.emplace_back(example.name);
    }
  }
  return values;
}

OptionWords option_words(const CLI::Option& option) {
  OptionWords words;
  for (const std::string& name : option.get_lnames()) {
    words.names.push_back("--" + name);
  }
  for (const std::string& name : option.get_snames()) {
    words.names.push_back("-" + name);
  }
  words.help = option.get_description();
  words.takes_value = option.get_items_expected_max() > 0;
  words.values = words.takes_value ? values_of(option.get_type_name()) : Values{};
  return words;
}

/// Appends the words of a command and of those below it; `common`: options that all of them take.
void collect(const CLI::App& app,
             const std::string& path,
             const std::vector<OptionWords>& common,
             std::vector<CommandWords>& all) {
  CommandWords words{path, app.get_description(), {}, {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      words.arguments = argument_of(path, *option);
    } else if (!option->get_group().empty()) {
      words.options.push_back(option_words(*option));
    }
  }
  if (!path.empty()) {
    words.options.insert(words.options.end(), common.begin(), common.end());
  }
  for (const CLI::App* command : app.get_subcommands({})) {
    words.commands.push_back(command->get_name());
  }
  all.push_back(std::move(words));
  for (const CLI::App* command : app.get_subcommands({})) {
    const std::string& name = command->get_name();
    collect(*command, path.empty() ? name : path + " " + name, common, all);
  }
}

std::string key_list() {
  std::string text;
  for (const auto& [key, words] : key_words()) {
    text += (text.empty() ? "" : " ") + key;
  }
  return text;
}

/// Lines `KEY) offered="..." ;;` for keys with few words.
std::string word_cases(const char* indent) {
  std::string text;
  for (const auto& [key, words] : key_words()) {
    if (!words.empty()) {
      text += fmt::format("{}{}) offered=\"{}\" ;;\n", indent, key, fmt::join(words, " "));
    }
  }
  return text;
}

/// Lines that find out which command the words so far name; bash and zsh read them alike.
std::string command_cases(const std::vector<CommandWords>& all, const char* indent) {
  std::string text;
  for (const CommandWords& words : all) {
    const std::size_t space = words.path.rfind(' ');
    const std::string parent = space == std::string::npos ? "" : words.path.substr(0, space);
    if (!words.path.empty()) {
      text += fmt::format("{}\"{}:{}\") command=\"{}\" ;;\n",
                          indent,
                          parent,
                          words.path.substr(space == std::string::npos ? 0 : space + 1),
                          words.path);
    }
  }
  return text;
}

/// One `case` line: sets the variables offered, files and keys of both scripts.
std::string offer(const std::string& pattern, const Values& values) {
  return fmt::format("    {}) offered=\"{}\" files={} keys={} ;;\n",
                     pattern,
                     fmt::join(values.words, " "),
                     values.files ? 1 : 0,
                     values.keys ? 1 : 0);
}

/// One way to write an option of a command.
struct NamedOption {
  std::string name;
  const OptionWords* option = nullptr;
};

std::vector<NamedOption> named_options(const CommandWords& words) {
  std::vector<NamedOption> all;
  for (const OptionWords& option : words.options) {
    for (const std::string& name : option.names) {
      all.push_back({name, &option});
    }
  }
  return all;
}

/// What follows an option, then which options and arguments a command has.
std::string offers(const std::vector<CommandWords>& all) {
  std::string after;
  std::string options;
  std::string arguments;
  for (const CommandWords& words : all) {
    std::string names;
    for (const auto& [name, option] : named_options(words)) {
      names += (names.empty() ? "" : " ") + name;
      after += option->takes_value
                   ? offer(fmt::format("\"{}:{}\"", words.path, name), option->values)
                   : "";
    }
    options += fmt::format("    \"{}:-\") offered=\"{}\" ;;\n", words.path, names);
    Values values = words.arguments;
    values.words.insert(values.words.end(), words.commands.begin(), words.commands.end());
    arguments += offer(fmt::format("\"{}:\"", words.path), values);
  }
  return after + options + arguments;
}

/// Pattern of all options that wait for a value.
std::string waiting(const std::vector<CommandWords>& all) {
  std::string text;
  for (const CommandWords& words : all) {
    for (const auto& [name, option] : named_options(words)) {
      text += option->takes_value
                  ? fmt::format("{}\"{}:{}\"", text.empty() ? "" : "|", words.path, name)
                  : "";
    }
  }
  return text;
}

/// The part that bash and zsh share: the variables command, offered, files and keys from `current`,
/// `previous` and the words before. An option that waits for a value decides, else the word itself.
std::string shared_part(const std::vector<CommandWords>& all) {
  return fmt::format(
      "    case \"$command:$word\" in\n"
      "{}"
      "    esac\n"
      "  done\n"
      "  local place=\"$command:$previous\" offered=\"\" files=0 keys=0\n"
      "  case \"$place\" in\n"
      "    {}) ;;\n"
      "    *) case \"$current\" in -*) place=\"$command:-\" ;; *) place=\"$command:\" ;; esac ;;\n"
      "  esac\n"
      "  case \"$place\" in\n"
      "{}"
      "  esac\n",
      command_cases(all, "      "),
      waiting(all),
      offers(all));
}

std::string bash_script(const std::vector<CommandWords>& all) {
  return fmt::format(
             "# Completion of colossal-train for bash: source <(colossal-train completion bash)\n"
             "_colossal_train() {{\n"
             "  local current=\"${{COMP_WORDS[COMP_CWORD]}}\" "
             "previous=\"${{COMP_WORDS[COMP_CWORD-1]}}\"\n"
             "  local command=\"\" word i offered=\"\" key=\"\"\n"
             "  # bash splits KEY=VALUE at the sign\n"
             "  if [ \"$current\" = \"=\" ]; then key=$previous; current=\"\"\n"
             "  elif [ \"$previous\" = \"=\" ]; then key=${{COMP_WORDS[COMP_CWORD-2]}}; fi\n"
             "  if [ -n \"$key\" ]; then\n"
             "    case \"$key\" in\n{}    esac\n"
             "    mapfile -t COMPREPLY < <(compgen -W \"$offered\" -- \"$current\")\n"
             "    return\n"
             "  fi\n"
             "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
             "    word=${{COMP_WORDS[i]}}\n"
             "{}",
             word_cases("      "),
             shared_part(all)) +
         "  local suffix=\"\"\n"
         "  [ $keys = 0 ] || offered=\"$offered " +
         key_list() +
         "\"\n"
         "  if [ $keys = 1 ] && [ \"$previous\" = --set ]; then suffix=\"=\"; compopt -o nospace "
         "2>/dev/null; fi\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"$offered\" -S \"$suffix\" -- \"$current\")\n"
         "  if [ $files = 1 ]; then\n"
         "    compopt -o filenames 2>/dev/null\n"
         "    mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- \"$current\")\n"
         "  fi\n"
         "}\n"
         "complete -F _colossal_train colossal-train\n";
}

std::string zsh_script(const std::vector<CommandWords>& all) {
  return "#compdef colossal-train\n"
         "# Completion of colossal-train for zsh: source <(colossal-train completion zsh), or this "
         "text as\n"
         "# _colossal-train in a folder of fpath\n"
         "_colossal_train() {\n"
         "  local current=\"${words[CURRENT]}\" previous=\"${words[CURRENT-1]}\" command=\"\" "
         "word\n"
         "  local -a before=(\"${(@)words[2,CURRENT-1]}\")\n"
         "  for word in \"${before[@]}\"; do\n" +
         shared_part(all) + "  [ $keys = 0 ] || offered=\"$offered " + key_list() +
         "\"\n"
         "  if [ $keys = 1 ] && [ \"$previous\" = --set ]; then compadd -S = -- ${=offered}\n"
         "  else compadd -- ${=offered}; fi\n"
         "  [ $files = 0 ] || _files\n"
         "}\n"
         "if [ \"$funcstack[1]\" = _colossal-train ]; then _colossal_train \"$@\"\n"
         "else compdef _colossal_train colossal-train; fi\n";
}

std::string fish_quoted(std::string text) {
  for (std::size_t at = text.find('\''); at != std::string::npos; at = text.find('\'', at + 2)) {
    text.insert(at, 1, '\\');
  }
  return "'" + text + "'";
}

std::string fish_values(const Values& values) {
  std::string text = values.files ? " -F" : " -f";
  std::string words = fmt::format("{}", fmt::join(values.words, " "));
  words += values.keys ? " " + key_list() : "";
  return words.empty() ? text : text + " -a " + fish_quoted(words);
}

/// The line that tells fish of one option; `start` is what begins every line of its command.
std::string fish_option(const std::string& start, const OptionWords& option) {
  std::string text = start;
  for (const std::string& name : option.names) {
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  text += option.takes_value ? " -r" + fish_values(option.values) : "";
  return text + " -d " + fish_quoted(option.help) + "\n";
}

std::string fish_script(const std::vector<CommandWords>& all) {
  std::string text =
      "# Completion of colossal-train for fish: colossal-train completion fish | source\n"
      "function __colossal_train_command\n"
      "  set -l command ''\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    switch \"$command:$word\"\n";
  for (const CommandWords& words : all) {
    const std::size_t space = words.path.rfind(' ');
    const std::string parent = space == std::string::npos ? "" : words.path.substr(0, space);
    text += words.path.empty()
                ? ""
                : fmt::format("      case '{}:{}'\n        set command '{}'\n",
                              parent,
                              words.path.substr(space == std::string::npos ? 0 : space + 1),
                              words.path);
  }
  text +=
      "    end\n  end\n  test \"$command\" = \"$argv[1]\"\nend\ncomplete -c colossal-train -f\n";
  for (const CommandWords& words : all) {
    const std::string start =
        fmt::format("complete -c colossal-train -n \"__colossal_train_command '{}'\"", words.path);
    Values values = words.arguments;
    values.words.insert(values.words.end(), words.commands.begin(), words.commands.end());
    text += start + fish_values(values) + "\n";
    for (const OptionWords& option : words.options) {
      text += fish_option(start, option);
    }
  }
  return text;
}

}  // namespace

void add_completion(CommandLine& line) {
  CLI::App* command = add_command(line.app,
                                  "completion",
                                  "print the script that completes this program's words in a shell",
                                  "source <(colossal-train completion bash)");
  const auto shell = std::make_shared<std::string>();
  need(line,
       command,
       add_option(command, "SHELL", *shell, "bash, zsh or fish", "")
           ->check(CLI::IsMember({"bash", "zsh", "fish"})));
  set_action(line, command, [&line, shell] {
    std::vector<OptionWords> common;
    for (const CLI::Option* option : common_options(line.app)) {
      common.push_back(option_words(*option));
    }
    std::vector<CommandWords> all;
    collect(line.app, "", common, all);
    fmt::print("{}",
               *shell == "bash"  ? bash_script(all)
               : *shell == "zsh" ? zsh_script(all)
                                 : fish_script(all));
    return 0;
  });
}

}  // namespace colossal
