/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: a tree as text, with everything of it that counts, so that two can be compared. */
#ifndef PV_STAGE_DESCRIBE_H
#define PV_STAGE_DESCRIBE_H

/*
 * One line an entry, sorted: path, mode, owner, links, size, text of a link, hash, attributes. Times of files only when
 * they are old (a test set them). The caller's. NULL and a message on stderr when it cannot be read.
 */
char *describe_tree(const char *dir);

#endif
