/* SPDX-License-Identifier: Apache-2.0 */
/* The patterns of --include and --exclude: see select.h. */
#include <fnmatch.h>
#include <string.h>
#include "cmd/select.h"

enum { NAME_BYTES = 256 }; /* NAME_MAX and a NUL: a longer pattern for one name matches none */

struct segment {
        const char *s;
        size_t len;
};

/* The segment at *p, advancing behind its slash; false at the end. */
static bool next_segment(const char **p, size_t *left, struct segment *out)
{
        if (*left == 0)
                return false;
        const char *slash = memchr(*p, '/', *left);
        size_t len = slash ? (size_t)(slash - *p) : *left;
        *out = (struct segment){ *p, len };
        size_t step = len + (slash != NULL);
        *p += step;
        *left -= step;
        return true;
}

static bool name_matches(struct segment glob, struct segment name)
{
        char g[NAME_BYTES], n[NAME_BYTES];
        if (glob.len >= sizeof g || name.len >= sizeof n)
                return false;
        memcpy(g, glob.s, glob.len);
        g[glob.len] = '\0';
        memcpy(n, name.s, name.len);
        n[name.len] = '\0';
        return fnmatch(g, n, 0) == 0;
}

/* True when the glob's segments match the path or a directory that it lies in. */
static bool segments_match(const char *glob, size_t glob_len, const char *path, size_t path_len)
{
        struct segment g, n;
        while (next_segment(&glob, &glob_len, &g)) {
                if (g.len == 2 && memcmp(g.s, "**", 2) == 0) {
                        if (glob_len == 0)
                                return path_len > 0;
                        do {
                                if (segments_match(glob, glob_len, path, path_len))
                                        return true;
                        } while (next_segment(&path, &path_len, &n));
                        return false;
                }
                if (!next_segment(&path, &path_len, &n) || !name_matches(g, n))
                        return false;
        }
        return true;
}

bool pv_glob_matches(const char *glob, const char *path)
{
        size_t glob_len = strlen(glob), path_len = strlen(path);
        while (glob_len && glob[glob_len - 1] == '/')
                glob_len--;
        if (glob_len == 0)
                return false;
        if (glob[0] == '/')
                return segments_match(glob + 1, glob_len - 1, path, path_len);
        if (memchr(glob, '/', glob_len))
                return segments_match(glob, glob_len, path, path_len);
        struct segment name, all = { glob, glob_len };
        while (next_segment(&path, &path_len, &name))
                if (name_matches(all, name))
                        return true;
        return false;
}
