/* SPDX-License-Identifier: Apache-2.0 */
#include "base/closest.h"

#include <string.h>
#include "base/str.h"

#define WORD_MAX 63

/* Edit distance of short words, two neighbours in the wrong order being one mistake (Damerau), three rows at a time. */
static unsigned distance(const char *a, const char *b)
{
        unsigned rows[3][WORD_MAX + 1];
        size_t n = strlen(b), m = strlen(a);
        if (n > WORD_MAX || m > WORD_MAX)
                return 1000;
        for (size_t j = 0; j <= n; j++)
                rows[0][j] = (unsigned)j;
        for (size_t i = 1; i <= m; i++) {
                unsigned *row = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
                row[0] = (unsigned)i;
                for (size_t j = 1; j <= n; j++) {
                        unsigned replaced = above[j - 1] + (a[i - 1] != b[j - 1]);
                        row[j] = (row[j - 1] < above[j] ? row[j - 1] : above[j]) + 1;
                        if (replaced < row[j])
                                row[j] = replaced;
                        if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] < row[j])
                                row[j] = before[j - 2] + 1;
                }
        }
        return rows[m % 3][n];
}

void pv_closest_offer(struct pv_closest *c, const char *candidate)
{
        unsigned d = distance(c->word, candidate);
        if (d > 2 && pv_str_has_prefix(candidate, c->word) && strlen(c->word) >= 3)
                d = 2;
        size_t n = strlen(candidate);
        if (d == 2 && n < 5 && c->word[0] != candidate[0])
                return; /* half of a short word is another word */
        if (d <= 2 && 2 * (size_t)d <= n && (!c->best || d < c->distance)) {
                c->best = candidate;
                c->distance = d;
        }
}
