/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From what a person writes to rules: the one reader of the command line, of configuration files and of grants. One
 * text may stand for several rules:
 *
 *   example.com:443                                    the short form of netrule.h
 *   example.com:80,443,8000-8010                       several ports
 *   @npm                                               a group (groups.h)
 *   host=db.example.com;ports=5432,5433;transports=tcp;allow_private_ips=true;rate=10mbps
 *
 * The long form is what a mapping of a configuration file becomes (config.h). host may be a group there, too.
 * transports: tcp is connections, dns or udp looking the name up; none named is both.
 */
#ifndef PV_POLICY_NETRULES_H
#define PV_POLICY_NETRULES_H

#include "policy/groups.h"
#include "policy/netrule.h"

struct pv_netrules {
        struct pv_netrule *v;
        size_t n;
};
void pv_netrules_fini(struct pv_netrules *r);
#define pv_auto_netrules __attribute__((cleanup(pv_netrules_fini))) struct pv_netrules

/* Whether the text needs the groups to be known. */
bool pv_netrules_names_group(const char *text);

/*
 * Appends the rules of one text. *bytes_per_second is the rate that they share, 0 without one. groups may be NULL: a
 * group is an error then. PV_ERR_USAGE names the text and what is wrong with it.
 */
int pv_netrules_add(struct pv_netrules *r, const char *text, const struct pv_groups *groups, uint64_t *bytes_per_second,
                    struct pv_err *err);

#endif
