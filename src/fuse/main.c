/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation: libexec/pvisor/pvisor-fuse
 *
 * Job: to serve the staged view of one directory over FUSE where the kernel's overlayfs cannot: over mounts below the
 * directory, files whose owner or group the sandbox has no id for, an upper on a file system that overlayfs refuses.
 * What it writes is the kernel's own format (marks.h), so that all that reads a stage finds what it knows. Non-job:
 * confining the command (the mount namespace does that), deciding anything.
 *
 * Actors. The supervisor starts this program in the host's namespaces with the person's own rights, so that it sees
 * the host's directory as the person does, mounts and foreign owners included, live: each name is looked up there
 * when it is asked for. The sandbox's init opens /dev/fuse in its own user namespace (the kernel mounts no other),
 * mounts it and sends the descriptor. Every request then comes from the kernel on behalf of the command, which is
 * hostile in all that it chooses: names, offsets, sizes, order. It chooses no path: the kernel resolves one component
 * at a time and follows links in the sandbox; here a path is that of a node, opened beneath a layer's descriptor
 * without following any link (openat2, RESOLVE_BENEATH | NO_SYMLINKS), and its last name without, too.
 *
 *   supervisor            init                      this program
 *   fork, exec ---------------------------------->  opens the layers
 *   (boundary) ---------> opens /dev/fuse, mounts
 *                         hello, descriptors ---->  confines itself (confine.c), starts its threads
 *                         <---------------------- ready, or why not
 *   end of the run: which directories were shown? ->  (base/fuse_channel.h)
 *
 * Ends: with the mount (the kernel says ENODEV), or with the supervisor (PR_SET_PDEATHSIG). If it dies, every act of
 * the command on the view fails (ENOTCONN); nothing is lost that was written.
 *
 * Who may do what is judged by the kernel (default_permissions) by what it is shown, under the ids of the asking
 * process; for a foreign owner, which cannot be shown, see ids.c. As an ordinary user the layers are the person's own
 * and the host's rules hold besides; as root, new files are given to who made them.
 *
 * What the kernel keeps: of the layers, for as long as it likes, since only this program changes them; of the host's
 * directory, a second; and at each open it is seen whether pages are still good (ops_files.c).
 *
 * One lock over all that is in memory and over every change of names; reading and writing go on without it.
 *
 * Limits. A file whose owner may not read it cannot be copied up. A directory of the host's that is renamed is copied,
 * with all that is in it. Hard links of the host's are split by copying up. Every request costs two changes of
 * process: see docs/benchmark.md.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/fuse_channel.h"
#include "base/own_files.h"
#include "base/pass_fd.h"
#include "base/syscall.h"
#include "fuse/confine.h"
#include "fuse/keeper.h"
#include "fuse/ops.h"

#define FD_CHANNEL 3
#define THREADS    4
/* What inotify does not tell of the host's is seen that late; and the same where nothing is watched. */
#define WATCHED_SECONDS 10.0
#define HOST_SECONDS    1.0
#define LAYER_SECONDS   86400.0
#define QUESTION_MAX    65536

static const struct fuse_lowlevel_ops operations = {
        .init = pv_fuse_op_init,
        .lookup = pv_fuse_op_lookup,
        .forget = pv_fuse_op_forget,
        .forget_multi = pv_fuse_op_forget_multi,
        .getattr = pv_fuse_op_getattr,
        .setattr = pv_fuse_op_setattr,
        .readlink = pv_fuse_op_readlink,
        .mknod = pv_fuse_op_mknod,
        .mkdir = pv_fuse_op_mkdir,
        .unlink = pv_fuse_op_unlink,
        .rmdir = pv_fuse_op_rmdir,
        .symlink = pv_fuse_op_symlink,
        .rename = pv_fuse_op_rename,
        .link = pv_fuse_op_link,
        .open = pv_fuse_op_open,
        .read = pv_fuse_op_read,
        .write_buf = pv_fuse_op_write_buf,
        .release = pv_fuse_op_release,
        .opendir = pv_fuse_op_opendir,
        .readdir = pv_fuse_op_readdir,
        .readdirplus = pv_fuse_op_readdirplus,
        .releasedir = pv_fuse_op_releasedir,
        .statfs = pv_fuse_op_statfs,
        .setxattr = pv_fuse_op_setxattr,
        .getxattr = pv_fuse_op_getxattr,
        .listxattr = pv_fuse_op_listxattr,
        .removexattr = pv_fuse_op_removexattr,
        .create = pv_fuse_op_create,
        .fallocate = pv_fuse_op_fallocate,
        .lseek = pv_fuse_op_lseek,
        .copy_file_range = pv_fuse_op_copy_file_range,
        /* No flush, no fsync: as with overlayfs's `volatile`, nothing is synced before it is applied. */
};

/*
 * No write-back cache: the kernel would then believe its own sizes and times of files that the host changes. ACLs are
 * the kernel's to check, and without this flag a user namespace's mount has none.
 */
void pv_fuse_op_init(void *userdata, struct fuse_conn_info *conn)
{
        unsigned want = FUSE_CAP_ASYNC_READ | FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_DONT_MASK | FUSE_CAP_PARALLEL_DIROPS |
                        FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_POSIX_ACL | FUSE_CAP_ASYNC_DIO |
                        FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_READ;
        (void)userdata;
        conn->want = conn->capable & want;
        conn->time_gran = 1;
}

static void say_nothing(enum fuse_log_level level, const char *fmt, va_list ap)
{
        (void)level;
        (void)fmt;
        (void)ap;
}

/* ---- setting up ---- */

static int open_layer(struct pv_fuse_fs *fs, const char *path, struct pv_err *err)
{
        if (fs->n_layers == PV_FUSE_LAYERS - 1) /* one is left for the masks */
                return pv_err_set(err, PV_ERR_UNSUPPORTED, 0, "too many layers");
        int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open layer %s", path);
        fs->layer[fs->n_layers++] = fd;
        return 0;
}

/* Arguments: upper and work ("": none), the host's directory, the frozen layers, newest first. */
static int open_layers(struct pv_fuse_fs *fs, char **argv, struct pv_err *err)
{
        fs->writable = *argv[1] != '\0';
        fs->work = -1;
        if (fs->writable) {
                if (open_layer(fs, argv[1], err) < 0)
                        return -1;
                fs->work = open(argv[2], O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (fs->work < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "open %s", argv[2]);
        }
        for (char **frozen = argv + 4; *frozen; frozen++)
                if (open_layer(fs, *frozen, err) < 0)
                        return -1;
        return open_layer(fs, argv[3], err);
}

/* Must: the channel is descriptor 3. Takes everything else that was inherited away. */
static int settle(struct pv_err *err)
{
        sigset_t all;
        struct rlimit files;
        sigfillset(&all);
        (void)sigprocmask(SIG_SETMASK, &all, NULL); /* the terminal's are the command's */
        (void)setsid();
        (void)umask(0);
        if (pv_sys_close_range(FD_CHANNEL + 1, ~0U, 0) < 0 || chdir("/") < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "start");
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        for (int i = 0; i < 3 && null >= 0; i++)
                (void)dup2(null, i);
        if (null < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "/dev/null");
        if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
                files.rlim_cur = files.rlim_max;
                (void)setrlimit(RLIMIT_NOFILE, &files);
        }
        return 0;
}

/* Waits for init's word. The supervisor that died before the death signal was set shows as an end of file. */
static int receive(struct pv_fuse_fs *fs, int *fuse, struct pv_err *err)
{
        struct pv_fuse_hello hello;
        union pv_pass_room room;
        int fds[2] = { -1, -1 };
        struct iovec io = { .iov_base = &hello, .iov_len = sizeof hello };
        struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1 };
        pv_pass_accept(&m, &room, 2);
        ssize_t n = recvmsg(FD_CHANNEL, &m, MSG_CMSG_CLOEXEC);
        if (n == 0)
                _exit(1);
        if (n != (ssize_t)sizeof hello || pv_pass_take(&m, fds, 2) == 0 || m.msg_flags & (MSG_CTRUNC | MSG_TRUNC) ||
            hello.version != PV_FUSE_VERSION)
                return pv_err_set(err, PV_ERR_SYS, n < 0 ? errno : EPROTO, "the sandbox's word");
        hello.uids[sizeof hello.uids - 1] = hello.gids[sizeof hello.gids - 1] = '\0';
        if (pv_fuse_ids_parse(hello.uids, fs->uids, sizeof fs->uids / sizeof *fs->uids, &fs->n_uids) < 0 ||
            pv_fuse_ids_parse(hello.gids, fs->gids, sizeof fs->gids / sizeof *fs->gids, &fs->n_gids) < 0)
                return pv_err_set(err, PV_ERR_INPUT, 0, "the sandbox's ids");
        if (fds[1] >= 0) { /* above the host's directory */
                fs->layer[fs->n_layers] = fs->layer[fs->n_layers - 1];
                fs->layer[fs->n_layers++ - 1] = fds[1];
        }
        *fuse = fds[0];
        return 0;
}

/*
 * Root has its rights; anybody else takes those over all files of their own, and leaves outside who can give them to
 * another group.
 */
static int take_rights(struct pv_fuse_fs *fs, struct pv_err *err)
{
        fs->root = geteuid() == 0;
        fs->keeper = -1;
        if (!fs->root) {
                if (pv_fuse_keeper_start(&fs->keeper, err) < 0)
                        return -1;
                pv_own_files_open();
        }
        /* Last: a change of credentials takes it back (prctl(2)). The channel tells of who died before. */
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "die with the supervisor");
        return 0;
}

static int begin(struct pv_fuse_fs *fs, char **argv, int *fuse, struct pv_err *err)
{
        if (settle(err) < 0 || open_layers(fs, argv, err) < 0 || take_rights(fs, err) < 0 || receive(fs, fuse, err) < 0)
                return -1;
        fs->own_uid = geteuid();
        fs->own_gid = getegid();
        fs->short_s = HOST_SECONDS;
        fs->watched_s = WATCHED_SECONDS;
        fs->long_s = LAYER_SECONDS;
        if (pthread_mutex_init(&fs->lock, NULL) != 0 || pv_fuse_nodes_init(fs) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "look at the staged directory");
        if (pv_fuse_watch_open(fs) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "inotify");
        if (fs->writable && pv_fuse_probe_upper(fs) < 0)
                return pv_err_set(err, PV_ERR_UNSUPPORTED, errno,
                                  "the stage's file system takes neither whiteouts nor extended attributes");
        return pv_fuse_confine(fs, err);
}

/* ---- serving ---- */

static void *serve(void *session)
{
        struct fuse_session *se = session;
        struct fuse_buf buf = { 0 };
        while (!fuse_session_exited(se)) {
                int n = fuse_session_receive_buf(se, &buf);
                if (n == -EINTR || n == -EAGAIN)
                        continue;
                if (n <= 0)
                        break;
                fuse_session_process_buf(se, &buf);
        }
        free(buf.mem);
        return NULL;
}

/*
 * What was stored in mappings of files lies in the kernel until it thinks fit; taking the pages back makes it write
 * them, which the other threads serve.
 */
static void write_back(struct pv_fuse_fs *fs)
{
        (void)pthread_mutex_lock(&fs->lock);
        size_t n = 0;
        fuse_ino_t *open = pv_calloc(fs->n_uppers + 1, sizeof *open);
        for (size_t i = 0; i < fs->uppers_cap; i++)
                for (struct pv_fuse_node *node = fs->uppers[i]; node; node = node->next_upper)
                        if (node->handles && S_ISREG(node->type))
                                open[n++] = pv_fuse_ino_of(fs, node);
        (void)pthread_mutex_unlock(&fs->lock);
        for (size_t i = 0; i < n; i++)
                (void)fuse_lowlevel_notify_inval_inode(fs->session, open[i], 0, 0);
        free(open);
}

/* Answers the supervisor. Never returns: the process ends with the file system. */
static void *testify(void *arg)
{
        struct pv_fuse_fs *fs = arg;
        char *path = malloc(QUESTION_MAX + 1);
        for (ssize_t n; path && (n = recv(FD_CHANNEL, path, QUESTION_MAX, 0)) != 0;) {
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        break;
                path[n] = '\0';
                struct pv_fuse_answer answer = { .key = pv_fuse_question_key(path) };
                if (pv_streq(path, PV_FUSE_WRITE_BACK)) {
                        write_back(fs);
                } else {
                        (void)pthread_mutex_lock(&fs->lock);
                        answer.ino = pv_fuse_testify(fs, path);
                        (void)pthread_mutex_unlock(&fs->lock);
                }
                (void)send(FD_CHANNEL, &answer, sizeof answer, MSG_NOSIGNAL);
        }
        free(path);
        return NULL;
}

static struct fuse_session *open_session(struct pv_fuse_fs *fs, int fuse, struct pv_err *err)
{
        char name[] = "pvisor-fuse", place[32];
        char *argv[] = { name, NULL };
        struct fuse_args args = FUSE_ARGS_INIT(1, argv);
        fuse_set_log_func(say_nothing);
        struct fuse_session *se = fuse_session_new(&args, &operations, sizeof operations, fs);
        (void)snprintf(place, sizeof place, "/dev/fd/%d", fuse);
        if (!se || fuse_session_mount(se, place) != 0)
                (void)pv_err_set(err, PV_ERR_SYS, 0, "start the FUSE session");
        fs->session = se;
        return err->kind ? NULL : se;
}

static int start_threads(struct pv_fuse_fs *fs, pthread_t *thread, pthread_t *witness, struct pv_err *err)
{
        pthread_t watcher;
        if (pthread_create(witness, NULL, testify, fs) != 0 ||
            pthread_create(&watcher, NULL, pv_fuse_watch_run, fs) != 0)
                return pv_err_set(err, PV_ERR_SYS, 0, "start a thread");
        for (int i = 0; i < THREADS; i++)
                if (pthread_create(&thread[i], NULL, serve, fs->session) != 0)
                        return pv_err_set(err, PV_ERR_SYS, 0, "start a thread");
        return 0;
}

int main(int argc, char **argv)
{
        static struct pv_fuse_fs fs;
        struct pv_err err = PV_ERR_INIT;
        pthread_t thread[THREADS] = { 0 }, witness = 0;
        int fuse = -1;
        if (argc < 4)
                return 2; /* started by hand */
        if (begin(&fs, argv, &fuse, &err) < 0 || !open_session(&fs, fuse, &err) ||
            start_threads(&fs, thread, &witness, &err) < 0) {
                (void)send(FD_CHANNEL, &err, sizeof err, MSG_NOSIGNAL);
                return 1;
        }
        (void)send(FD_CHANNEL, &err, sizeof err, MSG_NOSIGNAL);
        for (int i = 0; i < THREADS; i++)
                (void)pthread_join(thread[i], NULL);
        (void)pthread_join(witness, NULL); /* until the supervisor has heard what it wants to know */
        _exit(0);
}
