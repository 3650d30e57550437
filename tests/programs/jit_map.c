/* SPDX-License-Identifier: MIT */
/*
 * A little just-in-time compiler: makes functions in anonymous memory, tells profilers their names as they expect it
 * (/tmp/perf-PID.map), and calls them. A fork runs them too. With an argument the map has lines that say nothing.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, SIZE = 64 };

typedef int function(int);

/* mov eax, constant; add eax, edi; ret */
static function *generate(unsigned char *at, int constant)
{
    unsigned char code[] = {0xb8, 0, 0, 0, 0, 0x01, 0xf8, 0xc3};
    memcpy(code + 1, &constant, 4);
    memcpy(at, code, sizeof code);
    return (function *)at;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"LazyCompile:*add hundred app.js:3", "_ZN3jit6doubleEi", "unnamed in the map"};
    unsigned char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char path[64];
    function *made[3];
    int sum = 0;
    (void)argv;
    snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
    FILE *map = fopen(path, "w");
    if (!map || page == MAP_FAILED)
        return 2;
    for (int i = 0; i < 3; i++) {
        made[i] = generate(page + i * SIZE, 100 * (i + 1));
        if (i < 2)
            fprintf(map, "%lx %x %s\n", (unsigned long)(uintptr_t)made[i], SIZE, names[i]);
    }
    if (argc > 1)
        fprintf(map, "no line\n12 zz name\nffffffffffffffff ff beyond\n");
    fclose(map);
    for (int i = 0; i < 3; i++)
        sum += made[i](i);
    pid_t child = fork();
    if (child == 0)
        _exit(generate(page + SIZE, 7)(0) == 7 && made[0](1) == 101 ? 0 : 1);
    int status = 1;
    waitpid(child, &status, 0);
    printf("%d %d %d\n", (int)getpid(), sum, status);
    return sum != 603 || status;
}
