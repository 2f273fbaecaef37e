/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pack's way: made inside the boundary and, as it comes, checked by the host's index-pack into a quarantine,
 * searched for what is missing, and only then renamed into the repository. What the job's git says about the pack is
 * not believed: neither that it is one, nor that it is whole.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/path.h"
#include "git/carry.h"
#include "git/carry_names.h"

#define PACK_BYTES_MAX (4ULL << 30)
#define PACK_SECONDS   300
#define UNPIN_TRIES    5
#define HEADER_BYTES   12 /* of a pack, before its objects; a hash of it all follows them. gitformat-pack(5) */

/* --- made inside --- */

static int make_pack(const struct pv_carry *c, const struct pv_git_runner *job, int out, struct pv_err *err)
{
        pv_auto_str revisions = { 0 };
        int exit_code = 0;
        pv_str_put(&revisions, c->known ? c->known : "");
        for (size_t i = 0; i < c->n_refs; i++)
                if (*c->ref[i].new_id)
                        pv_str_putf(&revisions, "%s\n", c->ref[i].new_id);
        const char *const words[] = { "git",
                                      "-C",
                                      c->view,
                                      "--git-dir=.git",
                                      "--no-replace-objects",
                                      "-c",
                                      "safe.directory=*",
                                      "-c",
                                      "core.fsmonitor=false",
                                      "pack-objects",
                                      "--revs",
                                      "--stdout",
                                      "--thin",
                                      "--delta-base-offset",
                                      "-q" };
        char *argv[sizeof words / sizeof *words + 1] = { 0 };
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
                argv[i] = pv_strdup(words[i]);
        int r = job->run_to(job->ctx, argv, revisions.s, revisions.len, out, PACK_BYTES_MAX, PACK_SECONDS, &exit_code,
                            err);
        for (size_t i = 0; argv[i]; i++)
                free(argv[i]);
        if (r < 0)
                return pv_err_wrap(err, "pack the commits inside the job");
        if (exit_code == 0)
                return 0;
        (void)pv_err_set(err, PV_ERR_INPUT, 0, "commits: git inside the job could not pack them (exit code %d)",
                         exit_code);
        return pv_err_hint(err, "pvisor inspect JOB -- git fsck says what its repository lacks");
}

/* --- the quarantine --- */

static int open_objects(const struct pv_carry *c, struct pv_err *err)
{
        pv_auto_free char *path = pv_path_join(c->host.common_dir, "objects");
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return fd < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "%s", path) : fd;
}

/* For the repository's owner, as whom git will write there. */
static int make_quarantine(struct pv_carry *c, struct pv_err *err)
{
        struct stat st;
        pv_auto_fd objects = open_objects(c, err);
        if (objects < 0)
                return -1;
        c->host.quarantine = pv_strf("%s/objects/%s", c->host.common_dir, c->quarantine);
        if (mkdirat(objects, c->quarantine, 0700) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "%s", c->host.quarantine);
        if (geteuid() == 0 &&
            (fstat(objects, &st) < 0 || fchownat(objects, c->quarantine, st.st_uid, st.st_gid, 0) < 0))
                return pv_err_set(err, PV_ERR_SYS, errno, "%s", c->host.quarantine);
        return 0;
}

static void remove_quarantine(struct pv_carry *c)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_fd objects = open_objects(c, &ignored);
        if (objects >= 0)
                (void)pv_path_remove_tree(objects, c->quarantine, &ignored);
}

/* "pack NAME", and no line more: those would be .gitmodules that could not be looked into. */
static int read_pack_name(struct pv_carry *c, const struct pv_git_answer *a, struct pv_err *err)
{
        char *tab = a->text ? strchr(a->text, '\t') : NULL, *nl = tab ? strchr(tab, '\n') : NULL;
        if (!nl || nl[1])
                return pv_err_set(err, PV_ERR_POLICY, 0, "commits: a .gitmodules file in them is missing");
        *nl = '\0';
        if (!pv_is_object_name(tab + 1))
                return pv_err_set(err, PV_ERR_INPUT, 0, "git index-pack: an answer that cannot be read");
        (void)snprintf(c->pack, sizeof c->pack, "%s", tab + 1);
        return 0;
}

/* A pack of no objects is not worth keeping. */
static int forget_empty_pack(struct pv_carry *c, struct pv_err *err)
{
        struct stat st;
        pv_auto_free char *path = pv_strf("%s/pack/pack-%s.pack", c->host.quarantine, c->pack);
        if (stat(path, &st) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "%s", path);
        if (st.st_size <= HEADER_BYTES + (c->host.sha256 ? 32 : 20))
                c->pack[0] = '\0';
        return 0;
}

static int refused(struct pv_err *err, const struct pv_str *said)
{
        return pv_err_set(err, PV_ERR_POLICY, 0, "commits: git refuses their objects: %s",
                          said->len ? said->s : "without a word");
}

/* Somebody may have stopped reading: an error then, and not our end. */
static int make_pack_into_pipe(const struct pv_carry *c, const struct pv_git_runner *job, int to, struct pv_err *err)
{
        const struct sigaction ignore = { .sa_handler = SIG_IGN };
        struct sigaction before;
        (void)sigaction(SIGPIPE, &ignore, &before);
        int r = make_pack(c, job, to, err);
        (void)sigaction(SIGPIPE, &before, NULL);
        return r;
}

/* The job's git writes, the host's reads at the same time. Who fails first says why. */
static int take_pack(struct pv_carry *c, const struct pv_git_runner *job, struct pv_err *err)
{
        static const char *const words[] = { "index-pack", "--stdin", "--fix-thin", "--strict", NULL };
        struct pv_err unpacked = PV_ERR_INIT;
        pv_auto_git_running index_pack = { 0 };
        pv_auto_git_answer a = { 0 };
        pv_auto_str said = { 0 };
        int pipefd[2];
        if (pipe2(pipefd, O_CLOEXEC) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "pipe for a pack");
        pv_auto_fd from = pipefd[0];
        pv_auto_fd to = pipefd[1];
        const struct pv_git_call call = { .words = words, .in_fd = from, .seconds = PACK_SECONDS };
        if (pv_git_host_start(&c->host, &call, &index_pack, err) < 0)
                return -1;
        pv_fd_closep(&from);
        int made = make_pack_into_pipe(c, job, to, &unpacked);
        pv_fd_closep(&to);
        if (made < 0 && unpacked.sys != EPIPE) {
                *err = unpacked;
                return -1;
        }
        if (pv_git_host_finish(&c->host, &index_pack, &a, &said, err) < 0)
                return pv_err_wrap(err, "commits: check the pack");
        if (a.exit_code != 0 || made < 0)
                return refused(err, &said);
        return read_pack_name(c, &a, err) < 0 ? -1 : forget_empty_pack(c, err);
}

/* Everything that the new tips lead to is there, as after a fetch. Our own pins do not count as the host's. */
static int look_for_holes(struct pv_carry *c, struct pv_err *err)
{
        static const char *const words[] = { "rev-list", "--objects", "--quiet",
                                             "--stdin",  "--not",     "--exclude=" PV_PINS "*",
                                             "--all",    NULL };
        pv_auto_str in = { 0 };
        for (size_t i = 0; i < c->n_refs; i++)
                if (*c->ref[i].new_id)
                        pv_str_putf(&in, "%s\n", c->ref[i].new_id);
        const struct pv_git_call call = { .words = words, .in = in.s, .in_len = in.len, .seconds = PACK_SECONDS };
        return pv_git_host_start(&c->host, &call, &c->looking, err);
}

int pv_carry_is_whole(struct pv_carry *c, struct pv_err *err)
{
        pv_auto_str said = { 0 };
        pv_auto_git_answer a = { 0 };
        if (c->looking.pid <= 0)
                return 0;
        int r = pv_git_host_finish(&c->host, &c->looking, &a, &said, err);
        pv_git_running_fini(&c->looking);
        if (r < 0 || a.exit_code == 0)
                return r;
        return pv_err_set(err, PV_ERR_POLICY, 0, "commits: what the job brings is not whole: %s",
                          said.len ? said.s : "git did not say why");
}

int pv_carry_import(struct pv_carry *c, const struct pv_git_runner *job, struct pv_err *err)
{
        return make_quarantine(c, err) < 0 || take_pack(c, job, err) < 0 ? -1 : look_for_holes(c, err);
}

/* --- into the repository --- */

static int move_file(int from, int to, const char *name, const char *suffix, bool required, struct pv_err *err)
{
        pv_auto_free char *file = pv_strf("pack-%s.%s", name, suffix);
        if (faccessat(to, file, F_OK, 0) == 0)
                return 0; /* of that name, so of that content */
        if (renameat(from, file, to, file) == 0 || (errno == ENOENT && !required))
                return 0;
        return pv_err_set(err, PV_ERR_SYS, errno, "%s", file);
}

static int touch_keep(int dir, const char *name, struct pv_err *err)
{
        static const char text[] = "pvisor apply --commits\n";
        pv_auto_free char *file = pv_strf("pack-%s.keep", name);
        pv_auto_fd fd = openat(dir, file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
        if (fd < 0 && errno != EEXIST)
                return pv_err_set(err, PV_ERR_SYS, errno, "%s", file);
        return fd < 0 ? 0 : pv_fd_write_all(fd, text, sizeof text - 1, file, err);
}

static int move_pack(struct pv_carry *c, struct pv_err *err)
{
        static const char *const order[] = { "pack", "rev", "idx" };
        pv_auto_free char *pack_dir = pv_strf("%s/objects/pack", c->host.common_dir);
        pv_auto_free char *own = pv_strf("%s/objects/%s/pack", c->host.common_dir, c->quarantine);
        pv_auto_fd from = open(own, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        pv_auto_fd to = open(pack_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (from < 0 || to < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "%s", to < 0 ? pack_dir : own);
        if (touch_keep(to, c->pack, err) < 0)
                return -1;
        for (size_t i = 0; i < sizeof order / sizeof *order; i++)
                if (move_file(from, to, c->pack, order[i], i != 1, err) < 0)
                        return -1;
        if (fsync(to) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "sync %s", pack_dir);
        return 0;
}

static void put_pins(const struct pv_carry *c, struct pv_str *out)
{
        for (size_t i = 0; i < c->n_refs; i++)
                if (c->ref[i].dest)
                        pv_str_putf(out, "option no-deref\nupdate " PV_PINS "%s/%zu %s\n", c->quarantine, i,
                                    c->ref[i].new_id);
}

void pv_carry_put_unpins(const struct pv_carry *c, struct pv_str *out)
{
        for (size_t i = 0; i < c->n_refs; i++)
                pv_str_putf(out, "option no-deref\ndelete " PV_PINS "%s/%zu\n", c->quarantine, i);
}

static int update_pins(struct pv_carry *c, const struct pv_str *in, struct pv_err *err)
{
        static const char *const words[] = { "update-ref", "--stdin", NULL };
        pv_auto_git_answer a = { 0 };
        const struct pv_git_call call = { .words = words, .in = in->s, .in_len = in->len };
        return in->len ? pv_git_host_must(&c->host, &call, &a, err) : 0;
}

int pv_carry_admit(struct pv_carry *c, struct pv_err *err)
{
        if (*c->pack && move_pack(c, err) < 0)
                return -1;
        pv_auto_str pins = { 0 };
        put_pins(c, &pins);
        pv_freep(&c->host.quarantine); /* from here on the repository itself */
        c->pinned = true;
        /* Pinned first, looked for again then: a collector that began before may have taken what the new ones need. */
        if (update_pins(c, &pins, err) < 0 || look_for_holes(c, err) < 0)
                return -1;
        return pv_carry_is_whole(c, err);
}

void pv_carry_unpin(struct pv_carry *c)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_free char *keep = pv_strf("%s/objects/pack/pack-%s.keep", c->host.common_dir, c->pack);
        pv_git_running_fini(&c->looking);
        pv_freep(&c->host.quarantine);
        /* Whoever packs references on the host holds their lock for a while. */
        for (int i = 0; i < UNPIN_TRIES && c->pinned; i++) {
                pv_auto_str pins = { 0 };
                pv_carry_put_unpins(c, &pins);
                if (update_pins(c, &pins, &ignored) == 0)
                        break;
                (void)usleep(100 * 1000);
        }
        if (*c->pack)
                (void)unlink(keep);
        for (size_t i = 0; i < 2; i++) { /* git leaves the directories */
                pv_auto_free char *dir = pv_strf("%s/" PV_PINS "%s", c->host.common_dir, i == 0 ? c->quarantine : "");
                (void)rmdir(dir);
        }
        remove_quarantine(c);
}
