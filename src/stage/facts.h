/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts: what one path is, in a layer or on the host, and whether two such records say the same. Everything
 * here is relative to a directory descriptor and follows no link.
 */
#ifndef PV_STAGE_FACTS_H
#define PV_STAGE_FACTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>
#include "base/arena.h"
#include "base/err.h"
#include "base/sha256.h"

/* What a path is. The text of a link lives in the arena of whoever filled this. */
struct pv_facts {
        mode_t mode; /* with the type; 0: there is nothing */
        uid_t uid;
        gid_t gid;
        unsigned nlink;
        uint64_t size, ino;
        uint64_t rdev;
        uint64_t blocks; /* of 512 bytes on disk; 0 in what was read from a record */
        struct timespec mtime, ctime;
        char *link;      /* target of a symbolic link; else NULL */
        uint64_t xattrs; /* digest of the extended attributes, ACLs among them; 0: there are none */
        bool hashed;
        unsigned char sha256[PV_SHA256_SIZE]; /* of a regular file, when hashed */
};

enum pv_facts_side {
        PV_FACTS_HOST,
        PV_FACTS_STAGED, /* the overlay's own attributes are left out, what it escaped is unescaped */
};

/*
 * Fills out from dirfd/name ("": dirfd itself), but for xattrs and the hash. A path that does not exist
 * (ENOENT, ENOTDIR) is mode 0. 0, or -1 with errno.
 */
int pv_facts_get(int dirfd, const char *name, struct pv_arena *arena, struct pv_facts *out);

/* Digest of the extended attributes of dirfd/name. 0, or -1 with errno. */
int pv_facts_get_xattrs(int dirfd, const char *name, enum pv_facts_side side, uint64_t *digest);
/* The same of a staged entry, and which of the overlay's own it carries (base/copy.h). */
int pv_facts_get_staged_xattrs(int dirfd, const char *name, uint64_t *digest, unsigned *overlay);

/* Hashes the regular file dirfd/name into f. 0, or -1 with errno (f->hashed stays false). */
int pv_facts_hash(int dirfd, const char *name, struct pv_facts *f);

/* Same type, permission bits, owner and attributes; what kind of file it is decides nothing else. */
bool pv_facts_same_metadata(const struct pv_facts *a, const struct pv_facts *b);
/* One and the same inode, not written and not changed in between. */
bool pv_facts_same_inode_state(const struct pv_facts *a, const struct pv_facts *b);
static inline bool pv_facts_exist(const struct pv_facts *f)
{
        return f->mode != 0;
}

#endif
