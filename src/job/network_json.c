/* SPDX-License-Identifier: Apache-2.0 */
#include "job/network_json.h"

/* Names of layers are static in a policy; these are all there are. "deny-all" is what jobs of before have. */
static const char *const layer_names[] = { PV_LAYER_USER,     PV_LAYER_SESSION, PV_LAYER_SAFE,
                                           PV_LAYER_DENY_ALL, PV_LAYER_PROFILE, "deny-all" };

static json_t *rules_json(const struct pv_netrule *rules, size_t n)
{
        json_t *list = json_array();
        for (size_t i = 0; i < n; i++) {
                pv_auto_str text = { 0 };
                pv_netrule_put(&text, &rules[i]);
                (void)json_array_append_new(list, json_string(text.s));
        }
        return list;
}

/* {"@npm": ["registry.npmjs.org:443", ...]}: which of the rules came of a group. */
static json_t *groups_json(const struct pv_netlayer *l)
{
        json_t *groups = json_object();
        const struct pv_netrule *const rules[] = { l->allow, l->deny };
        const size_t n[] = { l->n_allow, l->n_deny };
        for (size_t side = 0; side < 2; side++)
                for (size_t i = 0; i < n[side]; i++) {
                        const struct pv_netrule *r = &rules[side][i];
                        pv_auto_str text = { 0 };
                        if (!r->group[0])
                                continue;
                        json_t *list = json_object_get(groups, r->group);
                        if (!list && json_object_set_new(groups, r->group, list = json_array()) < 0)
                                continue;
                        pv_netrule_put(&text, r);
                        (void)json_array_append_new(list, json_string(text.s));
                }
        return groups;
}

static json_t *limit_json(const struct pv_netlimit *l)
{
        return json_pack("{s:s, s:o, s:I}", "target", l->target, "targets", rules_json(l->rules.v, l->rules.n),
                         "bytes_per_second", (json_int_t)l->bytes_per_second);
}

static json_t *publication_json(const struct pv_publication *p)
{
        pv_auto_str addr = { 0 };
        pv_netaddr_put(&addr, &p->addr);
        return json_pack("{s:s, s:i, s:i}", "address", addr.s, "host_port", (int)p->host_port, "port", (int)p->port);
}

json_t *pv_job_network_json(const struct pv_plan *p)
{
        json_t *layers = json_array(), *limits = json_array(), *publish = json_array(), *host_ports = json_array();
        for (size_t i = 0; i < p->netpolicy.n_layers; i++) {
                const struct pv_netlayer *l = &p->netpolicy.layer[i];
                (void)json_array_append_new(layers,
                                            json_pack("{s:s, s:b, s:o, s:o, s:o}", "name", l->name, "closed", l->closed,
                                                      "allow", rules_json(l->allow, l->n_allow), "deny",
                                                      rules_json(l->deny, l->n_deny), "groups", groups_json(l)));
        }
        for (size_t i = 0; i < p->netpolicy.n_limits; i++)
                (void)json_array_append_new(limits, limit_json(&p->netpolicy.limits[i]));
        for (size_t i = 0; i < p->n_publications; i++)
                (void)json_array_append_new(publish, publication_json(&p->publications[i]));
        for (size_t i = 0; i < p->n_host_ports; i++)
                (void)json_array_append_new(host_ports,
                                            json_pack("{s:i, s:i}", "host_port", (int)p->host_ports[i].host_port,
                                                      "port", (int)p->host_ports[i].port));
        return json_pack("{s:o, s:o, s:b, s:o, s:o}", "layers", layers, "limits", limits, "allow_private_ips",
                         p->netpolicy.allow_private_ips, "publish", publish, "host_ports", host_ports);
}

static int get_texts(const json_t *object, const char *key, struct pv_strv *out, struct pv_err *err)
{
        json_t *list = NULL;
        if (pv_json_get_array(object, key, PV_NETPOLICY_RULES, &list, err) < 0)
                return -1;
        for (size_t i = 0; i < json_array_size(list); i++) {
                const char *text = json_string_value(json_array_get(list, i));
                if (!text)
                        return pv_err_set(err, PV_ERR_INPUT, 0, "\"%s\" holds what is no text", key);
                pv_strv_add(out, text);
        }
        return 0;
}

/* Marks the rules that came of groups. */
static void read_groups(const json_t *groups, struct pv_netrule *rules, size_t n)
{
        const char *name;
        json_t *list;
        size_t i;
        json_t *one;
        json_object_foreach((json_t *)groups, name, list)
        {
                json_array_foreach(list, i, one)
                {
                        for (size_t k = 0; k < n; k++) {
                                pv_auto_str text = { 0 };
                                pv_netrule_put(&text, &rules[k]);
                                if (!rules[k].group[0] && json_string_value(one) &&
                                    pv_streq(text.s, json_string_value(one)))
                                        (void)snprintf(rules[k].group, sizeof rules[k].group, "%s", name);
                        }
                }
        }
}

static int read_layer(const json_t *j, struct pv_netpolicy *p, struct pv_err *err)
{
        pv_auto_strv allow = { 0 }, deny = { 0 };
        const char *name = NULL, *known = NULL;
        if (pv_json_get_str(j, "name", &name, err) < 0 || get_texts(j, "allow", &allow, err) < 0 ||
            get_texts(j, "deny", &deny, err) < 0)
                return -1;
        for (size_t i = 0; i < sizeof layer_names / sizeof *layer_names; i++)
                if (pv_streq(name, layer_names[i]))
                        known = layer_names[i];
        if (!known)
                return pv_err_set(err, PV_ERR_INPUT, 0, "layer \"%s\" is not known", name);
        const struct pv_netlayer_texts texts = {
                .name = known,
                .allow = &allow,
                .deny = &deny,
                .closed = json_is_true(json_object_get(j, "closed")),
        };
        size_t before = p->n_layers;
        if (pv_netpolicy_add_layer(p, &texts, NULL, err) < 0)
                return -1;
        for (size_t i = before; i < p->n_layers; i++) {
                read_groups(json_object_get(j, "groups"), p->layer[i].allow, p->layer[i].n_allow);
                read_groups(json_object_get(j, "groups"), p->layer[i].deny, p->layer[i].n_deny);
        }
        return 0;
}

static int read_limit(const json_t *j, struct pv_netpolicy *p, struct pv_err *err)
{
        pv_auto_netrules rules = { 0 };
        pv_auto_strv texts = { 0 };
        const char *target = NULL;
        int64_t rate = 0;
        uint64_t unused = 0;
        if (pv_json_get_str(j, "target", &target, err) < 0 ||
            pv_json_get_int(j, "bytes_per_second", 1, INT64_MAX, &rate, err) < 0)
                return -1;
        if (!json_object_get(j, "targets"))
                pv_strv_add(&texts, target);
        else if (get_texts(j, "targets", &texts, err) < 0)
                return -1;
        for (size_t i = 0; i < texts.n; i++)
                if (pv_netrules_add(&rules, texts.v[i], NULL, &unused, err) < 0)
                        return -1;
        pv_netpolicy_take_limit(p, target, &rules, (uint64_t)rate);
        return 0;
}

static int read_host_port(const json_t *j, struct pv_plan *p, struct pv_err *err)
{
        int64_t host_port = 0, port = 0;
        if (pv_json_get_int(j, "host_port", 1, 65535, &host_port, err) < 0 ||
            pv_json_get_int(j, "port", 1, 65535, &port, err) < 0)
                return -1;
        p->host_ports = pv_realloc(p->host_ports, p->n_host_ports + 1, sizeof *p->host_ports);
        p->host_ports[p->n_host_ports++] = (struct pv_host_port){ (uint16_t)host_port, (uint16_t)port };
        return 0;
}

static int read_publication(const json_t *j, struct pv_plan *p, struct pv_err *err)
{
        struct pv_publication pub;
        const char *addr = NULL;
        int64_t host_port = 0, port = 0;
        if (pv_json_get_str(j, "address", &addr, err) < 0 ||
            pv_json_get_int(j, "host_port", 1, 65535, &host_port, err) < 0 ||
            pv_json_get_int(j, "port", 1, 65535, &port, err) < 0)
                return -1;
        if (!pv_netaddr_parse(addr, &pub.addr))
                return pv_err_set(err, PV_ERR_INPUT, 0, "\"address\" is none");
        pub.host_port = (uint16_t)host_port;
        pub.port = (uint16_t)port;
        p->publications = pv_realloc(p->publications, p->n_publications + 1, sizeof *p->publications);
        p->publications[p->n_publications++] = pub;
        return 0;
}

int pv_job_network_read(const json_t *j, struct pv_plan *p, struct pv_err *err)
{
        json_t *layers = NULL, *limits = NULL, *publish = NULL;
        const json_t *host_ports = json_object_get(j, "host_ports"); /* none in jobs of before */
        if (!j)                                                      /* a job from before there were rules */
                return 0;
        if (pv_json_get_array(j, "layers", PV_NETPOLICY_LAYERS, &layers, err) < 0 ||
            pv_json_get_array(j, "limits", PV_NETPOLICY_RULES, &limits, err) < 0 ||
            pv_json_get_array(j, "publish", 256, &publish, err) < 0)
                return -1;
        p->netpolicy.allow_private_ips = json_is_true(json_object_get(j, "allow_private_ips"));
        for (size_t i = 0; i < json_array_size(layers); i++)
                if (read_layer(json_array_get(layers, i), &p->netpolicy, err) < 0)
                        return -1;
        for (size_t i = 0; i < json_array_size(limits); i++)
                if (read_limit(json_array_get(limits, i), &p->netpolicy, err) < 0)
                        return -1;
        for (size_t i = 0; i < json_array_size(publish); i++)
                if (read_publication(json_array_get(publish, i), p, err) < 0)
                        return -1;
        for (size_t i = 0; i < json_array_size(host_ports) && i < PV_HOST_PORTS_MAX; i++)
                if (read_host_port(json_array_get(host_ports, i), p, err) < 0)
                        return -1;
        return 0;
}
