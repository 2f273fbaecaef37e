/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The benchmark's stopwatch, small and static so that it adds nothing of its own: it times a command from fork to exit,
 * or a piece of file work done in its own process (which may stand inside a sandbox), and prints one line
 * "nanoseconds status max-rss-in-KiB".
 *
 *   timer again WORK...       does any of the following twice and times the second
 *   timer run COMMAND...      launch to exit, all three streams on /dev/null
 *   timer walk DIR N          lstat of everything below DIR, which must be N entries
 *   timer write DIR N BYTES   creates N files of so many bytes in DIR
 *   timer append DIR N        appends 100 bytes to each of the N files that write made
 *   timer write+append DIR N BYTES DIR2 N2
 *                             one after the other
 *   timer edit DIR N WORD     changes line 10 of the first N files of a tree as places.py makes it (DIR/dNNN/fNN.txt)
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what)
{
        perror(what);
        exit(125);
}

static long long now(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int run(char **argv, long *rss)
{
        pid_t pid = vfork();
        if (pid < 0)
                die("vfork");
        if (pid == 0) {
                int fd = open("/dev/null", O_RDWR);
                dup2(fd, 0);
                dup2(fd, 1);
                dup2(fd, 2);
                execvp(argv[0], argv);
                _exit(127);
        }
        int status = 0;
        struct rusage usage;
        if (wait4(pid, &status, 0, &usage) < 0)
                die("wait4");
        *rss = usage.ru_maxrss;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* How many entries there are below fd, which it takes. */
static int walk(int fd)
{
        int n = 0;
        DIR *dir = fdopendir(fd);
        if (!dir)
                die("opendir");
        for (struct dirent *e; (e = readdir(dir));) {
                struct stat st;
                if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                        continue;
                if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        die(e->d_name);
                n++;
                if (S_ISDIR(st.st_mode))
                        n += walk(openat(dirfd(dir), e->d_name, O_RDONLY | O_DIRECTORY));
        }
        closedir(dir);
        return n;
}

static void put(const char *path, int flags, const char *data, size_t n)
{
        int fd = open(path, flags, 0644);
        if (fd < 0 || write(fd, data, n) != (ssize_t)n || close(fd) < 0)
                die(path);
}

static void write_files(const char *dir, int files, int flags, size_t bytes)
{
        char *data = malloc(bytes), path[4096];
        if (!data)
                die("malloc");
        memset(data, 'x', bytes);
        for (int i = 0; i < files; i++) {
                (void)snprintf(path, sizeof path, "%s/w%d", dir, i);
                put(path, flags, data, bytes);
        }
        free(data);
}

/* Line 10 is the only one that places.py writes with "value ". */
static void edit(const char *dir, int files, const char *word)
{
        for (int i = 0; i < files; i++) {
                char path[4096], text[8192];
                (void)snprintf(path, sizeof path, "%s/d%03d/f%02d.txt", dir, i / 100, i % 100);
                int fd = open(path, O_RDONLY);
                ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
                if (n < 0)
                        die(path);
                close(fd);
                text[n] = '\0';
                char *value = strstr(text, "value ");
                if (!value)
                        die("no line to edit");
                memcpy(value + 6, word, 1);
                put(path, O_WRONLY | O_TRUNC, text, (size_t)n);
        }
}

/* argv[0] is the name of the work. Its status, or -1 for work that there is not. */
static int work(int argc, char **argv, long *rss)
{
        const char *name = argc > 1 ? argv[0] : "";
        if (strcmp(name, "run") == 0)
                return run(argv + 1, rss);
        if (strcmp(name, "walk") == 0 && argc == 3)
                return walk(open(argv[1], O_RDONLY | O_DIRECTORY)) != atoi(argv[2]);
        if (strcmp(name, "write") == 0 && argc == 4)
                write_files(argv[1], atoi(argv[2]), O_WRONLY | O_CREAT | O_EXCL, (size_t)atol(argv[3]));
        else if (strcmp(name, "append") == 0 && argc == 3)
                write_files(argv[1], atoi(argv[2]), O_WRONLY | O_APPEND, 100);
        else if (strcmp(name, "write+append") == 0 && argc == 6) {
                write_files(argv[1], atoi(argv[2]), O_WRONLY | O_CREAT | O_EXCL, (size_t)atol(argv[3]));
                write_files(argv[4], atoi(argv[5]), O_WRONLY | O_APPEND, 100);
        } else if (strcmp(name, "edit") == 0 && argc == 4)
                edit(argv[1], atoi(argv[2]), argv[3]);
        else
                return -1;
        return 0;
}

int main(int argc, char **argv)
{
        long rss = 0;
        argc--;
        argv++;
        if (argc > 1 && strcmp(argv[0], "again") == 0) {
                argc--;
                argv++;
                (void)work(argc, argv, &rss);
        }
        long long start = now();
        int status = work(argc, argv, &rss);
        printf("%lld %d %ld\n", now() - start, status, rss);
        return status < 0 ? 2 : 0;
}
