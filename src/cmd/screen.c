/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/screen.h"

#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

const char *const pv_colour_choices[] = { "always", "never", "auto", NULL };

static bool is_set(const char *variable)
{
        const char *v = getenv(variable);
        return v && *v;
}

static bool wants_colour(enum pv_colour_choice choice, bool terminal)
{
        const char *term = getenv("TERM");
        if (choice == PV_COLOUR_ALWAYS || choice == PV_COLOUR_NEVER)
                return choice == PV_COLOUR_ALWAYS;
        return terminal && !is_set("NO_COLOR") && term && *term && !pv_streq(term, "dumb");
}

/* The person's choice as git understands it: $PVISOR_PAGER, $PAGER, less. NULL: none. */
static const char *pager_command(void)
{
        const char *p = getenv("PVISOR_PAGER");
        if (!p)
                p = getenv("PAGER");
        if (!p)
                return "less";
        return *p && !pv_streq(p, "cat") ? p : NULL;
}

void pv_screen_init(struct pv_screen *s, enum pv_colour_choice colour, bool no_pager)
{
        struct winsize size = { 0 };
        const char *term = getenv("TERM");
        *s = (struct pv_screen){ .terminal = isatty(STDOUT_FILENO), .columns = 80, .fd = STDOUT_FILENO };
        s->colour = wants_colour(colour, s->terminal);
        if (s->terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
                s->columns = size.ws_col ? size.ws_col : 80;
                s->rows = size.ws_row;
        }
        s->pages = s->terminal && s->rows && !no_pager && pager_command() && !(term && pv_streq(term, "dumb"));
}

/* The pager reads from the pipe; when there is none of that name, what is held goes to standard output after all. */
static int start_pager(struct pv_screen *s, struct pv_err *err)
{
        int pipes[2];
        if (pipe2(pipes, O_CLOEXEC) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "pipe");
        pv_auto_fd from = pipes[0], to = pipes[1];
        pid_t pid = fork();
        if (pid < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "fork");
        if (pid == 0) {
                (void)setenv("LESS", "FRX", 0);
                (void)setenv("LV", "-c", 0);
                if (dup2(from, STDIN_FILENO) < 0)
                        _exit(127);
                (void)execl("/bin/sh", "sh", "-c", pager_command(), NULL);
                _exit(127);
        }
        (void)signal(SIGPIPE, SIG_IGN); /* a pager that is quit early ends nothing */
        s->pager = pid;
        s->fd = pv_fd_steal(&to);
        return 0;
}

static int put_out(struct pv_screen *s, const struct pv_str *text, struct pv_err *err)
{
        if (s->gone || text->len == 0)
                return 0;
        if (pv_fd_write_all(s->fd, text->s, text->len, "standard output", err) == 0)
                return 0;
        if (err->sys != EPIPE)
                return -1;
        pv_err_clear(err);
        s->gone = true;
        return 0;
}

static size_t count_lines(const struct pv_str *text)
{
        size_t n = 0;
        for (size_t i = 0; i < text->len; i++)
                n += text->s[i] == '\n';
        return n;
}

static int release(struct pv_screen *s, struct pv_err *err)
{
        int r = put_out(s, &s->held, err);
        pv_str_fini(&s->held);
        return r;
}

int pv_screen_write(struct pv_screen *s, struct pv_str *text, struct pv_err *err)
{
        int r = 0;
        if (s->pages && !s->pager) {
                s->held_lines += count_lines(text);
                pv_str_put_bytes(&s->held, text->len ? text->s : "", text->len);
                if (s->held_lines >= s->rows)
                        r = start_pager(s, err) < 0 || release(s, err) < 0 ? -1 : 0;
        } else {
                r = put_out(s, text, err);
        }
        pv_str_fini(text);
        return r;
}

int pv_screen_close(struct pv_screen *s, struct pv_err *err)
{
        int status = 0, r = release(s, err);
        if (!s->pager)
                return r;
        (void)close(s->fd);
        s->fd = STDOUT_FILENO;
        while (waitpid(s->pager, &status, 0) < 0 && errno == EINTR)
                ;
        s->pager = 0;
        return r;
}

static const char *const sequences[] = {
        [PV_STYLE_PLAIN] = "",        [PV_STYLE_BOLD] = "\033[1m",        [PV_STYLE_DIM] = "\033[2m",
        [PV_STYLE_RED] = "\033[31m",  [PV_STYLE_GREEN] = "\033[32m",      [PV_STYLE_YELLOW] = "\033[33m",
        [PV_STYLE_CYAN] = "\033[36m", [PV_STYLE_RED_BOLD] = "\033[1;31m",
};
static_assert(sizeof sequences / sizeof *sequences == PV_STYLES, "one sequence a style");

const char *pv_style_on(const struct pv_screen *s, enum pv_style style)
{
        return s->colour ? sequences[style] : "";
}

const char *pv_style_off(const struct pv_screen *s)
{
        return s->colour ? "\033[0m" : "";
}

void pv_put_styled(struct pv_str *b, const struct pv_screen *s, enum pv_style style, const char *text)
{
        pv_str_putf(b, "%s%s%s", pv_style_on(s, style), text, pv_style_off(s));
}

/* One character of well-formed UTF-8 (what pv_str_put_safe() leaves is): its bytes, and its number. */
static size_t decode(const char *s, size_t n, uint32_t *number)
{
        unsigned char c = (unsigned char)s[0];
        size_t len = c < 0xc0 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
        *number = len == 1 ? c : c & (0x7fU >> len);
        for (size_t i = 1; i < len && i < n; i++)
                *number = *number << 6 | ((unsigned char)s[i] & 0x3f);
        return len < n ? len : n;
}

/*
 * Columns of a character on a terminal: 2 for East Asian wide and full-width ones and most pictures (Unicode, UAX #11),
 * 0 for marks that stand over the one before.
 */
static size_t width_of(uint32_t c)
{
        static const struct {
                uint32_t first, last;
                uint8_t width;
        } ranges[] = {
                { 0x0300, 0x036f, 0 },   { 0x1100, 0x115f, 2 },   { 0x200b, 0x200d, 0 },   { 0x20d0, 0x20ff, 0 },
                { 0x2e80, 0x303e, 2 },   { 0x3041, 0x33ff, 2 },   { 0x3400, 0x4dbf, 2 },   { 0x4e00, 0xa4cf, 2 },
                { 0xa960, 0xa97f, 2 },   { 0xac00, 0xd7a3, 2 },   { 0xf900, 0xfaff, 2 },   { 0xfe00, 0xfe0f, 0 },
                { 0xfe30, 0xfe6f, 2 },   { 0xff00, 0xff60, 2 },   { 0xffe0, 0xffe6, 2 },   { 0x1f300, 0x1f64f, 2 },
                { 0x1f680, 0x1f6ff, 2 }, { 0x1f900, 0x1f9ff, 2 }, { 0x20000, 0x3fffd, 2 },
        };
        for (size_t i = 0; i < sizeof ranges / sizeof *ranges && c >= ranges[i].first; i++)
                if (c <= ranges[i].last)
                        return ranges[i].width;
        return 1;
}

size_t pv_columns(const char *s, size_t n)
{
        size_t columns = 0;
        uint32_t c = 0;
        for (size_t i = 0; i < n; columns += width_of(c))
                i += decode(s + i, n - i, &c);
        return columns;
}

/* The byte at which no more than that many columns have gone by. */
static size_t byte_of_column(const char *s, size_t n, size_t column)
{
        size_t at = 0;
        for (size_t i = 0; i < n;) {
                uint32_t c = 0;
                size_t len = decode(s + i, n - i, &c);
                at += width_of(c);
                if (at > column)
                        return i;
                i += len;
        }
        return n;
}

/* The byte from which on the rest has no more than that many columns. */
static size_t byte_of_rest(const char *s, size_t n, size_t columns, size_t rest)
{
        for (size_t i = 0; i < n;) {
                uint32_t c = 0;
                if (columns <= rest)
                        return i;
                i += decode(s + i, n - i, &c);
                columns -= width_of(c);
        }
        return n;
}

void pv_put_fitted_safe(struct pv_str *b, const char *safe, size_t max)
{
        size_t n = strlen(safe), columns = pv_columns(safe, n);
        if (columns <= max || max < 8) {
                pv_str_put_bytes(b, safe, n);
                return;
        }
        size_t head = (max - 3) / 3, tail = max - 3 - head;
        pv_str_put_bytes(b, safe, byte_of_column(safe, n, head));
        pv_str_put(b, "...");
        pv_str_put(b, safe + byte_of_rest(safe, n, columns, tail));
}

void pv_put_cut_safe(struct pv_str *b, const char *safe, size_t n, size_t max, const char *mark)
{
        size_t dots = strlen(mark);
        if (pv_columns(safe, n) <= max) {
                pv_str_put_bytes(b, safe, n);
                return;
        }
        if (dots > max)
                dots = max;
        pv_str_put_bytes(b, safe, byte_of_column(safe, n, max - dots));
        pv_str_put_bytes(b, mark, dots);
}

void pv_put_fitted(struct pv_str *b, const char *s, size_t max)
{
        pv_auto_str safe = { 0 };
        pv_str_put_path(&safe, s);
        pv_put_fitted_safe(b, safe.s, max);
}
