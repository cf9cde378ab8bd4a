/* Prints its arguments as execv() has passed them, each followed by NUL. */
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  for (int i = 0; i < argc; ++i)
    if (fwrite(argv[i], 1, strlen(argv[i]) + 1, stdout) != strlen(argv[i]) + 1) return 1;
  return fclose(stdout) == 0 ? 0 : 1;
}
