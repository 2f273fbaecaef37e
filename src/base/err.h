/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one error object. The caller owns it, it has a fixed size and nothing in it is allocated, so it works in a
 * forked child and travels to the parent as one datagram. It is set once, where the failure is seen; callers at a
 * module's edge put context before it with pv_err_wrap(); it is printed once, in cmd/.
 */
#ifndef PV_BASE_ERR_H
#define PV_BASE_ERR_H

/* Kinds say what a caller may do about it; cmd/ turns them into exit codes with pv_err_exit_code(). */
enum pv_err_kind {
        PV_ERR_NONE = 0,
        PV_ERR_SYS,         /* a system call or a file failed: 1 */
        PV_ERR_INPUT,       /* damaged or foreign data in a file of ours: 1 */
        PV_ERR_USAGE,       /* the command line or the configuration is wrong: 2 */
        PV_ERR_CONFLICT,    /* the target changed meanwhile; nothing was changed: 3 */
        PV_ERR_NO_JOB,      /* no such job: 4 */
        PV_ERR_UNSUPPORTED, /* a required limit cannot be enforced here: 5 */
        PV_ERR_POLICY,      /* refused by policy: 6 */
        PV_ERR_BUSY,        /* someone else holds the stage, job or target: 1 */
        PV_ERR_STATE,       /* the job is not in a state that allows this: 1 */
        PV_ERR_NOT_EXEC,    /* the command is not executable: 126 */
        PV_ERR_NOT_FOUND,   /* the command was not found: 127 */
        PV_ERR_KINDS
};

struct pv_err {
        enum pv_err_kind kind;
        int sys;        /* errno where one is at the origin, else 0 */
        char msg[512];  /* "what: why", no newline, may hold raw bytes of a path: print with pv_str_put_safe() */
        char hint[256]; /* the fix, where there is one; else empty */
};

#define PV_ERR_INIT                 \
        {                           \
                .kind = PV_ERR_NONE \
        }

/* Sets the error; ": strerror(sys)" is appended when sys is not 0. Returns -1 always. */
int pv_err_set(struct pv_err *e, enum pv_err_kind kind, int sys, const char *fmt, ...)
        __attribute__((format(printf, 4, 5), nonnull(1), cold));

/* Puts "context: " before the message of a set error. Returns -1 always. */
int pv_err_wrap(struct pv_err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3), nonnull(1), cold));

/* Sets the hint, the second line that a person sees. Returns -1 always. */
int pv_err_hint(struct pv_err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3), nonnull(1), cold));

void pv_err_clear(struct pv_err *e) __attribute__((nonnull));

/* The exit code of a command other than `run` that ends with this error. */
int pv_err_exit_code(const struct pv_err *e) __attribute__((nonnull));

#endif
