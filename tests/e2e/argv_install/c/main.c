/* A program outside of the project, in C. Prints the arguments, one a line. */
#include <stdio.h>
#include <twinloft/argv.h>

int main(int argc, char** args) {
  tl_argv_template* command = NULL;
  tl_argv_error error;
  tl_argv_value to[] = {{"to", argc > 2 ? args[2] : "", TL_ARGV_LENGTH}};
  tl_argv_values values = {to, 1};
  char** argv = NULL;
  if (argc != 3) return 64;
  if (tl_argv_parse(args[1], TL_ARGV_LENGTH, NULL, 0, &command, &error) != TL_ARGV_OK ||
      tl_argv_expand(command, values, &argv, NULL, &error) != TL_ARGV_OK) {
    fputs(error.rendered, stderr);
    tl_argv_template_free(command);
    return 1;
  }
  for (size_t i = 0; argv[i] != NULL; ++i) puts(argv[i]);
  tl_argv_vector_free(argv);
  tl_argv_template_free(command);
  return 0;
}
