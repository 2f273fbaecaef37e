/* SPDX-License-Identifier: Apache-2.0 */
/* The operations that the kernel asks for, by file; and what they share. Each takes the file system's lock itself. */
#ifndef PV_FUSE_OPS_H
#define PV_FUSE_OPS_H

#define FUSE_USE_VERSION 314
#include <fuse3/fuse_lowlevel.h>
#include "fuse/fs.h"

struct pv_fuse_fs *pv_fuse_of(fuse_req_t req);
struct pv_fuse_node *pv_fuse_node_of(struct pv_fuse_fs *fs, fuse_ino_t ino);
static inline fuse_ino_t pv_fuse_ino_of(const struct pv_fuse_fs *fs, const struct pv_fuse_node *n)
{
        return n == &fs->root_node ? FUSE_ROOT_ID : (fuse_ino_t)(uintptr_t)n;
}

/* Unlocks and answers: with errno where r < 0. */
void pv_fuse_done(fuse_req_t req, struct pv_fuse_fs *fs, int r);

/* Locked: the node of what was found, made when it is new; no look-up is counted yet. */
struct pv_fuse_node *pv_fuse_enter(struct pv_fuse_place *p, const char *name, const struct pv_fuse_found *f);
/* Locked: fills what the kernel is told of a node and counts the look-up. */
void pv_fuse_tell(struct pv_fuse_fs *fs, const struct pv_fuse_node *dir, struct pv_fuse_node *n,
                  const struct pv_fuse_found *f, struct fuse_entry_param *e);
/* How long what was found in dir (NULL: the root itself), in this layer, may be kept. */
double pv_fuse_timeout(const struct pv_fuse_fs *fs, const struct pv_fuse_node *dir, size_t layer);
/* Locked: an open file of the node. Takes fd. */
struct pv_fuse_handle *pv_fuse_handle_new(struct pv_fuse_node *n, int fd, bool lower);
/*
 * Locked: makes an entry where nothing visible is, by make(dirfd, name, ctx), and gives it to who asked for it; mode
 * has its type. PV_FUSE_IS_LINK in its place: another name of what somebody has already.
 */
#define PV_FUSE_IS_LINK ((mode_t)0)
typedef int pv_fuse_make(int dirfd, const char *name, void *ctx);
int pv_fuse_make_new(fuse_req_t req, struct pv_fuse_place *p, const char *name, mode_t mode, pv_fuse_make *make,
                     void *ctx);
/* The mode that a new entry gets: the umask counts where the directory has no default ACL. */
mode_t pv_fuse_masked(fuse_req_t req, struct pv_fuse_place *p, mode_t mode);

void pv_fuse_op_init(void *userdata, struct fuse_conn_info *conn);
void pv_fuse_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void pv_fuse_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n);
void pv_fuse_op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void pv_fuse_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void pv_fuse_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void pv_fuse_op_symlink(fuse_req_t req, const char *text, fuse_ino_t parent, const char *name);
void pv_fuse_op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name);
void pv_fuse_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void pv_fuse_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void pv_fuse_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent, const char *newname,
                       unsigned flags);

void pv_fuse_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void pv_fuse_op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int what, struct fuse_file_info *fi);
void pv_fuse_op_readlink(fuse_req_t req, fuse_ino_t ino);
void pv_fuse_op_statfs(fuse_req_t req, fuse_ino_t ino);
void pv_fuse_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void pv_fuse_op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags);
void pv_fuse_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void pv_fuse_op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

void pv_fuse_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void pv_fuse_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi);
void pv_fuse_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void pv_fuse_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void pv_fuse_op_write_buf(fuse_req_t req, fuse_ino_t ino, struct fuse_bufvec *in, off_t off, struct fuse_file_info *fi);
void pv_fuse_op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len, struct fuse_file_info *fi);
void pv_fuse_op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
void pv_fuse_op_copy_file_range(fuse_req_t req, fuse_ino_t in, off_t off_in, struct fuse_file_info *fi_in,
                                fuse_ino_t out, off_t off_out, struct fuse_file_info *fi_out, size_t len, int flags);

void pv_fuse_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void pv_fuse_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void pv_fuse_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void pv_fuse_op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);

#endif
