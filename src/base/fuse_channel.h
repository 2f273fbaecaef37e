/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is said between the program that serves a FUSE overlay (src/fuse), the sandbox's init that mounts it
 * (src/boundary), and the supervisor that started it (src/job), over one pair of SOCK_SEQPACKET sockets.
 *
 *   init        one pv_fuse_hello with one or two descriptors: /dev/fuse, opened in the user namespace that mounts it
 *               (the kernel wants that), and a layer of whiteouts for what has to stay hidden
 *   the server  one struct pv_err: kind PV_ERR_NONE when it serves
 *   supervisor  at the run's end, or whoever decides beside it: a question, as one packet: a directory's path below
 *               the root, or "/": everything that programs have stored in mappings is to be written to the layers
 *   the server  struct pv_fuse_answer: the inode number of the host's directory that the view showed there,
 *               throughout; else 0. Of "/", that it is done.
 */
#ifndef PV_BASE_FUSE_CHANNEL_H
#define PV_BASE_FUSE_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

#define PV_FUSE_VERSION 1

struct pv_fuse_hello {
        uint32_t version;
        char uids[1024], gids[1024]; /* as in uid_map */
};

struct pv_fuse_answer {
        uint64_t key; /* of the question: an earlier asker may have gone without its answer, which comes first then */
        uint64_t ino;
};
/* A hash (FNV-1a) of the question's text. */
uint64_t pv_fuse_question_key(const char *question);

/* Whether the descriptor is the supervisor's end of such a channel, and not that of a mounted view. */
bool pv_fuse_channel_is(int fd);
/* The supervisor's question: ino 0 when the server vouches for nothing. -1: it is gone. */
int pv_fuse_channel_ask(int fd, const char *path, uint64_t *ino);
#define PV_FUSE_WRITE_BACK "/"

#endif
