/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/config.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "policy/toml_hint.h"

#define CONFIG_MAX (256U << 10)
#define LIST_MAX   1024

char *pv_config_find(const char *xdg_config_home, const char *home, const char *name)
{
        pv_auto_free char *dir = NULL;
        if (xdg_config_home && xdg_config_home[0] == '/')
                dir = pv_path_join(xdg_config_home, "pvisor");
        else if (home)
                dir = pv_path_join(home, ".config/pvisor");
        pv_auto_free char *path = dir ? pv_path_join(dir, name) : NULL;
        return path && access(path, F_OK) == 0 ? pv_steal(&path) : NULL;
}

char *pv_config_default_path(const char *xdg_config_home, const char *home)
{
        return pv_config_find(xdg_config_home, home, "config.yaml");
}

/* A document being read, for errors. */
struct source {
        const char *path;
        yaml_document_t *document;
};

static int fail_at(const struct source *s, const yaml_node_t *node, struct pv_err *err)
{
        return pv_err_wrap(err, "%s:%zu", s->path, node->start_mark.line + 1);
}

static int fail(const struct source *s, const yaml_node_t *node, const char *why, struct pv_err *err)
{
        (void)pv_err_set(err, PV_ERR_USAGE, 0, "%s", why);
        return fail_at(s, node, err);
}

/* The text of a scalar, borrowed; NULL when the node is none, or holds a NUL. */
static const char *scalar(const yaml_node_t *node)
{
        if (!node || node->type != YAML_SCALAR_NODE ||
            strlen((const char *)node->data.scalar.value) != node->data.scalar.length)
                return NULL;
        return (const char *)node->data.scalar.value;
}

/* One part of a value: "key=value" or "key=value,value". False: neither, or with a character that separates parts. */
static bool put_part(const struct source *s, const yaml_node_pair_t *pair, struct pv_str *out)
{
        const char *key = scalar(yaml_document_get_node(s->document, pair->key));
        yaml_node_t *value = yaml_document_get_node(s->document, pair->value);
        if (!key || key[strcspn(key, "=;,")])
                return false;
        pv_str_putf(out, "%s%s=", out->len ? ";" : "", key);
        if (value->type == YAML_SCALAR_NODE) {
                const char *text = scalar(value);
                pv_str_put(out, text ? text : "");
                return text && !strchr(text, ';');
        }
        if (value->type != YAML_SEQUENCE_NODE)
                return false;
        for (yaml_node_item_t *i = value->data.sequence.items.start; i < value->data.sequence.items.top; i++) {
                const char *text = scalar(yaml_document_get_node(s->document, *i));
                if (!text || strchr(text, ';'))
                        return false;
                pv_str_putf(out, "%s%s", i > value->data.sequence.items.start ? "," : "", text);
        }
        return true;
}

/* A field being read. */
struct reading {
        const char *name;
        bool parts; /* its values may have some */
        const char *values[LIST_MAX];
        const yaml_node_t *nodes[LIST_MAX];
        size_t n;
        struct pv_strv texts; /* of values with parts */
};

static int add_value(const struct source *s, const yaml_node_t *node, struct reading *r)
{
        if (r->n == LIST_MAX)
                return -1;
        r->nodes[r->n] = node;
        r->values[r->n] = scalar(node);
        if (!r->values[r->n] && r->parts && node->type == YAML_MAPPING_NODE) {
                pv_auto_str text = { 0 };
                for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++)
                        if (!put_part(s, p, &text))
                                return -1;
                pv_str_put(&text, "");
                pv_strv_take(&r->texts, pv_str_steal(&text));
                r->values[r->n] = r->texts.v[r->texts.n - 1];
        }
        return r->values[r->n] ? (int)(r->n++, 0) : -1;
}

/* A scalar or a list of them; -1: it is something else, or too long, and *at the node. */
static int read_values(const struct source *s, const yaml_node_t *node, struct reading *r, const yaml_node_t **at)
{
        *at = node;
        if (node->type != YAML_SEQUENCE_NODE)
                return add_value(s, node, r);
        for (yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top; i++) {
                *at = yaml_document_get_node(s->document, *i);
                if (add_value(s, *at, r) < 0)
                        return -1;
        }
        return 0;
}

static int hand_on(const struct source *s, const yaml_node_pair_t *pair, struct reading *r,
                   const struct pv_config_sink *sink, struct pv_err *err)
{
        const yaml_node_t *key = yaml_document_get_node(s->document, pair->key), *at = NULL;
        const yaml_node_t *value = yaml_document_get_node(s->document, pair->value);
        size_t wrong = SIZE_MAX;
        if (read_values(s, value, r, &at) < 0) {
                (void)pv_err_set(err, PV_ERR_USAGE, 0, "%s: neither a value nor a list of values", r->name);
                return fail_at(s, at, err);
        }
        const struct pv_config_field field = {
                .name = r->name,
                .values = r->values,
                .n = r->n,
                .is_list = value->type == YAML_SEQUENCE_NODE,
                .wrong = &wrong,
        };
        if (sink->set(sink->ctx, &field, err) == 0)
                return 0;
        return fail_at(s, wrong < r->n ? r->nodes[wrong] : key, err);
}

static int load_field(const struct source *s, const yaml_node_pair_t *pair, const struct pv_strv *seen,
                      const struct pv_config_sink *sink, struct pv_err *err)
{
        yaml_node_t *key = yaml_document_get_node(s->document, pair->key);
        const char *name = scalar(key);
        if (!name)
                return fail(s, key, "a field's name is expected here", err);
        if (pv_strv_has(seen, name)) {
                (void)pv_err_set(err, PV_ERR_USAGE, 0, "%s: is given twice", name);
                return fail_at(s, key, err);
        }
        struct reading r = { .name = name, .parts = sink->takes_parts && sink->takes_parts(sink->ctx, name) };
        int done = hand_on(s, pair, &r, sink, err);
        pv_strv_fini(&r.texts);
        return done;
}

static int load_document(const struct source *s, const struct pv_config_sink *sink, struct pv_err *err)
{
        pv_auto_strv seen = { 0 };
        yaml_node_t *root = yaml_document_get_root_node(s->document);
        if (!root || (root->type == YAML_SCALAR_NODE && root->data.scalar.length == 0))
                return 0; /* empty, or nothing but comments */
        if (root->type != YAML_MAPPING_NODE)
                return fail(s, root, "fields are expected (YAML, as in \"safe: true\"; TOML is not read)", err);
        for (yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top; p++) {
                if (load_field(s, p, &seen, sink, err) < 0)
                        return -1;
                pv_strv_add(&seen, scalar(yaml_document_get_node(s->document, p->key)));
        }
        return 0;
}

/* The next document of the stream; one without a root node is its end. */
static int load_next(yaml_parser_t *parser, const char *path, yaml_document_t *out, struct pv_err *err)
{
        if (yaml_parser_load(parser, out))
                return 0;
        return pv_err_set(err, PV_ERR_USAGE, 0, "%s:%zu: %s", path, parser->problem_mark.line + 1,
                          parser->problem ? parser->problem : "not YAML");
}

static int expect_end(yaml_parser_t *parser, const char *path, struct pv_err *err)
{
        yaml_document_t next;
        if (load_next(parser, path, &next, err) < 0)
                return -1;
        bool end = !yaml_document_get_root_node(&next);
        yaml_document_delete(&next);
        return end ? 0 : pv_err_set(err, PV_ERR_USAGE, 0, "%s: more than one document", path);
}

static int parse(const char *path, const char *text, size_t len, const struct pv_config_sink *sink, struct pv_err *err)
{
        yaml_parser_t parser;
        yaml_document_t document;
        if (!yaml_parser_initialize(&parser))
                return pv_err_set(err, PV_ERR_SYS, ENOMEM, "%s", path);
        yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
        int r = load_next(&parser, path, &document, err);
        if (r == 0) {
                struct source s = { .path = path, .document = &document };
                r = load_document(&s, sink, err);
                if (r == 0 && yaml_document_get_root_node(&document))
                        r = expect_end(&parser, path, err);
                yaml_document_delete(&document);
        }
        yaml_parser_delete(&parser);
        return r;
}

#define HINT_MAX 200

static int refuse_toml(const char *path, const char *text, const struct pv_config_sink *sink, struct pv_err *err)
{
        size_t left = 0;
        (void)pv_err_set(err, PV_ERR_USAGE, 0, "%s: this is TOML; the fields are the options' names, in YAML", path);
        pv_auto_free char *yaml = sink->knows ? pv_toml_hint_yaml(text, HINT_MAX, sink->knows, sink->ctx, &left) : NULL;
        if (!yaml)
                return pv_err_hint(err, "in YAML: {safe: true, timeout: 30m}");
        return left ? pv_err_hint(err, "in YAML: %s, and %zu more", yaml, left) : pv_err_hint(err, "in YAML: %s", yaml);
}

int pv_config_load(const char *path, const struct pv_config_sink *sink, struct pv_err *err)
{
        pv_auto_fd fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        pv_auto_free char *text = NULL;
        size_t len = 0;
        if (fd < 0)
                return pv_err_set(err, PV_ERR_USAGE, errno, "%s", path);
        if (pv_fd_read_all(fd, CONFIG_MAX, path, &text, &len, err) < 0) {
                err->kind = PV_ERR_USAGE;
                return -1;
        }
        if (pv_toml_hint_is_toml(text))
                return refuse_toml(path, text, sink, err);
        return parse(path, text, len, sink, err);
}
