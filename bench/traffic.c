/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traffic for the network rows: the server and the clients that are timed against it. One request a connection: a
 * client sends 8 bytes, the number of bytes that it wants, and the server sends so many and closes.
 *
 *   serve                    on loopback; prints its port
 *   get HOST PORT BYTES      one download: prints its milliseconds
 *   ask HOST PORT N          N requests for 1 KiB, one after the other: prints the median in milliseconds
 *   rush HOST PORT N WIDTH   N requests for 1 KiB, WIDTH at a time: prints the milliseconds of all
 *   hold HOST PORT N         N connections at once, each with a byte each way: prints N, ends with its stdin
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define KIB   1024
#define CHUNK (256 * KIB)

static char chunk[CHUNK];
static struct sockaddr_storage target;
static socklen_t target_len;

static void die(const char *what)
{
        perror(what);
        exit(1);
}

static double now_ms(void)
{
        struct timespec t;
        (void)clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void resolve(const char *host, const char *port)
{
        struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *list;
        if (getaddrinfo(host, port, &hints, &list) != 0) {
                (void)fprintf(stderr, "%s: no address\n", host);
                exit(1);
        }
        memcpy(&target, list->ai_addr, list->ai_addrlen);
        target_len = list->ai_addrlen;
        freeaddrinfo(list);
}

static void send_all(int fd, const void *p, size_t n)
{
        while (n > 0) {
                ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
                if (k < 0)
                        return;
                p = (const char *)p + k;
                n -= (size_t)k;
        }
}

/* ---- server ---- */

static void answer(int fd, uint64_t bytes)
{
        if (bytes == UINT64_MAX) { /* hold: an echo of one byte, then open until the peer ends */
                send_all(fd, "x", 1);
                return;
        }
        for (; bytes > 0; bytes -= bytes < CHUNK ? bytes : CHUNK)
                send_all(fd, chunk, bytes < CHUNK ? bytes : CHUNK);
        (void)close(fd);
}

static void serve(void)
{
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t n = sizeof a;
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        if (bind(listener, (struct sockaddr *)&a, n) < 0 || listen(listener, 4096) < 0 ||
            getsockname(listener, (struct sockaddr *)&a, &n) < 0)
                die("serve");
        (void)signal(SIGCHLD, SIG_IGN);
        (void)printf("%u\n", ntohs(a.sin_port));
        (void)fflush(stdout);
        for (;;) {
                uint64_t bytes = 0;
                int fd = accept(listener, NULL, NULL);
                if (fd < 0)
                        die("accept");
                if (recv(fd, &bytes, sizeof bytes, MSG_WAITALL) != sizeof bytes) {
                        (void)close(fd);
                } else if (bytes > 64 * KIB && bytes != UINT64_MAX) {
                        if (fork() == 0) {
                                answer(fd, bytes);
                                _exit(0);
                        }
                        (void)close(fd);
                } else {
                        answer(fd, bytes);
                }
        }
}

/* ---- clients ---- */

static int ask_for(uint64_t bytes)
{
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&target, target_len) < 0)
                die("connect");
        send_all(fd, &bytes, sizeof bytes);
        return fd;
}

static void take(int fd, uint64_t want)
{
        uint64_t got = 0;
        for (ssize_t n; (n = recv(fd, chunk, sizeof chunk, 0)) != 0; got += (uint64_t)n)
                if (n < 0)
                        die("recv");
        if (got != want) {
                (void)fprintf(stderr, "got %llu bytes of %llu\n", (unsigned long long)got, (unsigned long long)want);
                exit(1);
        }
        (void)close(fd);
}

static int compare(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

static double ask(size_t n)
{
        double *took = calloc(n, sizeof *took);
        for (size_t i = 0; i < n; i++) {
                double start = now_ms();
                take(ask_for(KIB), KIB);
                took[i] = now_ms() - start;
        }
        qsort(took, n, sizeof *took, compare);
        return took[n / 2];
}

/* A connection of the rush is written once connected and read to its end. */
static void begin(int epoll)
{
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        struct epoll_event e = { .events = EPOLLOUT, .data.fd = fd };
        if (fd < 0 || (connect(fd, (struct sockaddr *)&target, target_len) < 0 && errno != EINPROGRESS) ||
            epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) < 0)
                die("connect");
}

/* True when it is over. */
static int go_on(int epoll, struct epoll_event *e)
{
        uint64_t bytes = KIB;
        if (e->events & EPOLLOUT) {
                struct epoll_event next = { .events = EPOLLIN, .data.fd = e->data.fd };
                if (send(e->data.fd, &bytes, sizeof bytes, MSG_NOSIGNAL) != sizeof bytes ||
                    epoll_ctl(epoll, EPOLL_CTL_MOD, e->data.fd, &next) < 0)
                        die("send");
                return 0;
        }
        ssize_t n = recv(e->data.fd, chunk, sizeof chunk, 0);
        if (n < 0 && errno != EAGAIN)
                die("recv");
        if (n != 0)
                return 0;
        (void)close(e->data.fd);
        return 1;
}

static double rush(size_t n, size_t width)
{
        struct epoll_event e[64];
        int epoll = epoll_create1(0);
        size_t begun = 0, over = 0;
        double start = now_ms();
        for (; begun < width && begun < n; begun++)
                begin(epoll);
        while (over < n) {
                int k = epoll_wait(epoll, e, 64, -1);
                for (int i = 0; i < k; i++)
                        if (go_on(epoll, &e[i])) {
                                over++;
                                if (begun < n) {
                                        begin(epoll);
                                        begun++;
                                }
                        }
        }
        return now_ms() - start;
}

static void hold(size_t n)
{
        struct rlimit r;
        char byte;
        (void)getrlimit(RLIMIT_NOFILE, &r);
        r.rlim_cur = r.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &r);
        int *fd = calloc(n, sizeof *fd);
        for (size_t i = 0; i < n; i++)
                fd[i] = ask_for(UINT64_MAX);
        for (size_t i = 0; i < n; i++)
                if (recv(fd[i], &byte, 1, 0) != 1)
                        die("recv");
        (void)printf("%zu\n", n);
        (void)fflush(stdout);
        (void)read(0, &byte, 1);
}

int main(int argc, char **argv)
{
        const char *what = argc > 1 ? argv[1] : "";
        if (strcmp(what, "serve") == 0) {
                struct rlimit r;
                (void)getrlimit(RLIMIT_NOFILE, &r);
                r.rlim_cur = r.rlim_max;
                (void)setrlimit(RLIMIT_NOFILE, &r);
                serve();
        }
        if (argc < 5)
                return 2;
        resolve(argv[2], argv[3]);
        uint64_t n = strtoull(argv[4], NULL, 10);
        double ms = 0;
        if (strcmp(what, "get") == 0) {
                double start = now_ms();
                take(ask_for(n), n);
                ms = now_ms() - start;
        } else if (strcmp(what, "ask") == 0) {
                ms = ask(n);
        } else if (strcmp(what, "rush") == 0) {
                ms = rush(n, argc > 5 ? strtoul(argv[5], NULL, 10) : 64);
        } else if (strcmp(what, "hold") == 0) {
                hold(n);
                return 0;
        }
        (void)printf("%.4f\n", ms);
        return 0;
}
