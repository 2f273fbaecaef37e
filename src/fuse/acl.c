/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/acl.h"

#include <endian.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <string.h>
#include "base/str.h"

typedef struct posix_acl_xattr_header header;
typedef struct posix_acl_xattr_entry entry;

bool pv_fuse_is_acl(const char *attr)
{
        return pv_streq(attr, "system.posix_acl_access") || pv_streq(attr, "system.posix_acl_default");
}

static bool is_list(const char *value, size_t len)
{
        header h;
        if (len < sizeof h || (len - sizeof h) % sizeof(entry))
                return false;
        memcpy(&h, value, sizeof h);
        return le32toh(h.a_version) == POSIX_ACL_XATTR_VERSION;
}

static entry entry_at(const char *value, size_t at)
{
        entry e;
        memcpy(&e, value + at, sizeof e);
        return e;
}

static unsigned tag_of(const entry *e)
{
        return le16toh(e->e_tag);
}

static bool is_foreign(const struct pv_fuse_fs *fs, const entry *e)
{
        uint32_t id = le32toh(e->e_id);
        return (tag_of(e) == ACL_USER && pv_fuse_uid_is_foreign(fs, id)) ||
               (tag_of(e) == ACL_GROUP && pv_fuse_gid_is_foreign(fs, id));
}

size_t pv_fuse_acl_show(const struct pv_fuse_fs *fs, char *value, size_t len)
{
        size_t out = sizeof(header);
        if (!is_list(value, len))
                return len;
        for (size_t at = sizeof(header); at < len; at += sizeof(entry)) {
                entry e = entry_at(value, at);
                if (is_foreign(fs, &e))
                        continue;
                memcpy(value + out, &e, sizeof e);
                out += sizeof e;
        }
        return out;
}

static bool has_mask(const char *value, size_t len)
{
        for (size_t at = sizeof(header); at < len; at += sizeof(entry)) {
                entry e = entry_at(value, at);
                if (tag_of(&e) == ACL_MASK)
                        return true;
        }
        return false;
}

/* Appends the foreign entries of that tag; the new length. */
static size_t put_foreign(const struct pv_fuse_fs *fs, unsigned tag, const char *old, size_t old_len, char *out,
                          size_t n, size_t room)
{
        for (size_t at = sizeof(header); at < old_len; at += sizeof(entry)) {
                entry e = entry_at(old, at);
                if (tag_of(&e) != tag || !is_foreign(fs, &e) || n + sizeof e > room)
                        continue;
                memcpy(out + n, &e, sizeof e);
                n += sizeof e;
        }
        return n;
}

/* Entries come in the order of their tags: named users before the group, named groups before the mask. */
size_t pv_fuse_acl_keep(const struct pv_fuse_fs *fs, const char *old, size_t old_len, const char *value, size_t len,
                        char *out, size_t room)
{
        size_t n = sizeof(header);
        memcpy(out, value, len);
        if (!is_list(old, old_len) || !is_list(value, len) || !has_mask(value, len))
                return len;
        for (size_t at = sizeof(header); at < len && n + sizeof(entry) <= room; at += sizeof(entry)) {
                entry e = entry_at(value, at);
                if (tag_of(&e) == ACL_GROUP_OBJ)
                        n = put_foreign(fs, ACL_USER, old, old_len, out, n, room);
                if (tag_of(&e) == ACL_MASK)
                        n = put_foreign(fs, ACL_GROUP, old, old_len, out, n, room);
                if (n + sizeof e > room)
                        break;
                memcpy(out + n, &e, sizeof e);
                n += sizeof e;
        }
        return n;
}
