// Prints the table of environment variables as the documentation shows it.
#include "core/environment.hpp"

#include <cstdio>
#include <string>
#include <string_view>

int main() {
  const auto code = [](std::string_view text) {
    return text.empty() ? std::string() : "`" + std::string(text) + "`";
  };
  std::puts("| variable | default | accepts | meaning |\n| --- | --- | --- | --- |");
  for (const disttune::core::Variable& v : disttune::core::variables())
    std::printf("| %s | %s | %s | %s |\n", code(v.name).c_str(), code(v.default_text).c_str(),
                std::string(v.type).c_str(), std::string(v.meaning).c_str());
}
