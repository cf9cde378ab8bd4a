// A program outside of the project, in C++17. Prints the arguments, one a line.
#include <twinloft/argv/advice.h>
#include <twinloft/argv/argv.h>
#include <iostream>

int main(int argc, char** args) {
  using namespace twinloft::argv;
  if (argc != 3) return 64;
  auto command = Template::parse(args[1]);
  if (!command) {
    std::cerr << command.error().rendered();
    return 1;
  }
  for (const auto& warning : check_agent_options(*command)) std::cerr << warning.rendered();
  auto arguments = command->expand({{"to", args[2]}});
  if (!arguments) {
    std::cerr << arguments.error().message << '\n';
    return 1;
  }
  for (const auto& argument : *arguments) std::cout << argument << '\n';
  return 0;
}
