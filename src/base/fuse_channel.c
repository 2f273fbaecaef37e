/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fuse_channel.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include "base/hash.h"

bool pv_fuse_channel_is(int fd)
{
        struct stat st;
        return fd >= 0 && fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
}

uint64_t pv_fuse_question_key(const char *question)
{
        return pv_hash_text(PV_HASH_START, question);
}

int pv_fuse_channel_ask(int fd, const char *question, uint64_t *ino)
{
        size_t len = strlen(question);
        uint64_t key = pv_fuse_question_key(question);
        struct pv_fuse_answer a;
        if (len == 0 || send(fd, question, len, MSG_NOSIGNAL) != (ssize_t)len)
                return -1;
        for (;;) {
                ssize_t n = recv(fd, &a, sizeof a, 0);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n != (ssize_t)sizeof a)
                        return -1;
                if (a.key == key)
                        break;
        }
        *ino = a.ino;
        return 0;
}
