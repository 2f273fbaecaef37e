/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/run_start.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/json.h"
#include "base/log.h"
#include "cmd/jobs.h"
#include "cmd/run_end.h"
#include "job/detach.h"
#include "job/run_report.h"

int pv_cmd_open_summary(const char *where, int *out, struct pv_err *err)
{
        char *end = NULL;
        if (!where)
                return 0;
        long n = *where ? strtol(where, &end, 10) : STDERR_FILENO;
        if (*where && *end)
                *out = open(where, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0644);
        else
                *out = n >= 0 && n < INT_MAX ? fcntl((int)n, F_DUPFD_CLOEXEC, 3) : -1;
        if (*out >= 0)
                return 0;
        return pv_err_set(err, PV_ERR_USAGE, errno, "--json=%s", where);
}

int pv_cmd_not_started(const struct pv_err *err, int summary)
{
        pv_run_report(&(struct pv_run_outcome){ .code = pv_run_exit_code(err), .failure = err }, summary);
        return -1;
}

void pv_cmd_say_notes(const struct pv_run_plan *decided)
{
        for (size_t i = 0; i < decided->notes.n; i++)
                pv_log_note("%s", decided->notes.v[i]);
}

/* The file that PATH leads a program's name to on the host, links followed; NULL: none. */
static char *on_the_host(const char *program)
{
        const char *path = getenv("PATH");
        if (strchr(program, '/'))
                return realpath(program, NULL);
        for (const char *p = path; p && *p; p += *p == ':') {
                size_t n = strcspn(p, ":");
                pv_auto_free char *file = pv_strf("%.*s/%s", (int)n, p, program);
                char *real = n && access(file, X_OK) == 0 ? realpath(file, NULL) : NULL;
                if (real)
                        return real;
                p += n;
        }
        return NULL;
}

/* What another tool takes before the command, and we do not: "-v /src:/dst", "alpine:3.20". */
static const char *foreign_word(const char *program)
{
        const char *colon = strchr(program, ':');
        if (!colon || strchr(program, ' '))
                return NULL;
        return program[0] == '/' && colon[1] == '/'
                       ? "--mount SRC[:DST]:read shows a directory; :stage and :write are the other ways"
                       : "images are not in this version: name the program itself, it runs on this system";
}

/* "Not found" of what the person sees on their own machine: it lies, or leads, where the view has nothing. */
static int hint_at_place(const struct pv_plan *plan, const char *program, struct pv_err *err)
{
        pv_auto_free char *file = NULL;
        if (err->kind == PV_ERR_NOT_EXEC && err->sys == EACCES && !*err->hint && program && strchr(program, '/'))
                return pv_err_hint(err, "it is not executable: chmod +x %.160s, or name its interpreter before it",
                                   program);
        if (err->kind != PV_ERR_NOT_FOUND || *err->hint || !program)
                return -1;
        if (foreign_word(program))
                return pv_err_hint(err, "%s", foreign_word(program));
        if (plan->filesystem == PV_FS_HOST)
                return -1;
        file = on_the_host(program);
        return file ? pv_err_hint(err,
                                  "here it is %.160s, which the run does not show: --mount DIR:read adds a directory",
                                  file)
                    : -1;
}

/* A person at a terminal, who has the id alone otherwise, is told what there is to do with it. */
static void say_next(const char *name, const char *id)
{
        if (!isatty(STDERR_FILENO))
                return;
        if (isatty(STDOUT_FILENO)) /* then the job has a terminal of its own */
                pv_log_note("next: pvisor attach %s", name ? name : id);
        else
                pv_log_note("next: pvisor logs -f %s", name ? name : id);
}

/* What the starter of a detached job says of it. */
static int say_detached(const struct pv_run_plan *decided, const char *id, const char *name, int summary,
                        struct pv_err *err)
{
        pv_auto_str line = { 0 };
        pv_str_putf(&line, "%s\n", id);
        if (summary >= 0) {
                pv_auto_json j = json_pack("{s:s, s:b, s:o}", "id", id, "detached", 1, "workspace",
                                           pv_json_bytes(decided->plan->workspace));
                pv_auto_free char *text = json_dumps(j, JSON_COMPACT);
                pv_auto_free char *whole = text ? pv_strf("%s\n", text) : NULL;
                if (!whole || pv_fd_write_all(summary, whole, strlen(whole), "--json", err) < 0)
                        return -1;
        }
        if (pv_cmd_print(&line, err) < 0)
                return -1;
        say_next(name, id);
        return 0;
}

/* The summary is the starter's once the command runs, and the new process's while that may still fail. */
static int start_detached(struct pv_run *r, const struct pv_run_plan *decided, struct pv_err *err)
{
        pv_auto_detached d = PV_DETACHED_INIT;
        char id[PV_JOB_ID_TEXT] = { 0 };
        struct pv_run_end end = { 0 };
        bool starter = true;
        int code = 0;
        d.summary = r->summary;
        if (pv_detach(&d, &starter, id, &code, err) < 0)
                return pv_cmd_not_started(err, d.summary);
        if (starter)
                return !id[0] ? code : say_detached(decided, id, r->request->name, r->summary, err);
        r->detached = &d;
        r->summary = d.summary;
        int executed = pv_run_execute(r, decided, &end, err);
        r->detached = NULL;
        return executed < 0 ? hint_at_place(decided->plan, r->argv ? r->argv[0] : NULL, err) : end.code;
}

int pv_cmd_start(struct pv_run *r, const struct pv_run_plan *decided, enum pv_cmd_start how, struct pv_err *err)
{
        struct pv_run_end end = { 0 };
        if (how == PV_CMD_DETACHED)
                return start_detached(r, decided, err);
        if (pv_run_execute(r, decided, &end, err) == 0)
                return pv_cmd_end_as(&end);
        return hint_at_place(decided->plan, r->argv ? r->argv[0] : NULL, err);
}
