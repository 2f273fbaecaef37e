/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a person, a configuration file or a grant writes as network rules. What is understood is written and read
 * again alike.
 */
#include "policy/netrules.h"

#include <string.h>
#include "net/fuzz/fuzz.h"

const struct pv_fuzz_seed pv_fuzz_seeds[] = {
        PV_FUZZ_SEED("*.example.com:443"),
        PV_FUZZ_SEED("[2001:db8::/32]:80,443,8000-8010"),
        PV_FUZZ_SEED("203.0.113.0/24:1-65535"),
        PV_FUZZ_SEED("::ffff:1.2.3.4/120"),
        PV_FUZZ_SEED("@npm"),
        PV_FUZZ_SEED("host=db.example.com;ports=5432,5433-5440;transports=tcp,udp;allow_private_ips=true;rate=10mbps"),
        PV_FUZZ_SEED("host=@npm;transports=dns;rate=2mib/s"),
        PV_FUZZ_SEED("*"),
        { NULL, 0 },
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        pv_auto_netrules rules = { 0 };
        struct pv_err err = PV_ERR_INIT;
        char *targets[] = { (char[]){ "registry.npmjs.org:443" }, (char[]){ "10.0.0.0/8" } };
        struct pv_group npm = { .name = (char[]){ "npm" }, .file = (char[]){ "f" }, .targets = { targets, 2 } };
        const struct pv_groups groups = { &npm, 1 };
        uint64_t rate = 0;
        pv_auto_free char *text = pv_strndup((const char *)data, size);
        if (pv_netrules_add(&rules, text, &groups, &rate, &err) < 0)
                return 0;
        PV_FUZZ_HOLDS(rules.n > 0);
        for (size_t i = 0; i < rules.n; i++) {
                pv_auto_netrules again = { 0 };
                pv_auto_str first = { 0 }, second = { 0 };
                const struct pv_netrule *r = &rules.v[i];
                PV_FUZZ_HOLDS(r->port_first >= 1 && r->port_first <= r->port_last && r->prefix <= 128);
                pv_netrule_put(&first, r);
                PV_FUZZ_HOLDS(pv_netrules_add(&again, first.s, NULL, &rate, &err) == 0 && again.n == 1);
                pv_netrule_put(&second, &again.v[0]);
                PV_FUZZ_HOLDS(pv_streq(first.s, second.s));
        }
        return 0;
}
