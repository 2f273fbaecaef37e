/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/config.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"

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

/* Fills values from a scalar or a list of them; -1: it is something else, or too long. */
static int read_values(const struct source *s, yaml_node_t *node, const char **values, struct pv_config_field *field)
{
        if (node->type == YAML_SCALAR_NODE) {
                values[0] = scalar(node);
                field->n = 1;
                return values[0] ? 0 : -1;
        }
        if (node->type != YAML_SEQUENCE_NODE)
                return -1;
        field->is_list = true;
        for (yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top; i++) {
                if (field->n == LIST_MAX)
                        return -1;
                values[field->n] = scalar(yaml_document_get_node(s->document, *i));
                if (!values[field->n++])
                        return -1;
        }
        return 0;
}

static int load_field(const struct source *s, const yaml_node_pair_t *pair, const struct pv_strv *seen,
                      const struct pv_config_sink *sink, struct pv_err *err)
{
        const char *values[LIST_MAX];
        yaml_node_t *key = yaml_document_get_node(s->document, pair->key);
        yaml_node_t *value = yaml_document_get_node(s->document, pair->value);
        struct pv_config_field field = { .name = scalar(key), .values = values };
        if (!field.name)
                return fail(s, key, "a field's name is expected here", err);
        if (pv_strv_has(seen, field.name)) {
                (void)pv_err_set(err, PV_ERR_USAGE, 0, "%s: is given twice", field.name);
                return fail_at(s, key, err);
        }
        if (read_values(s, value, values, &field) < 0) {
                (void)pv_err_set(err, PV_ERR_USAGE, 0, "%s: neither a value nor a list of values", field.name);
                return fail_at(s, value, err);
        }
        return sink->set(sink->ctx, &field, err) < 0 ? fail_at(s, key, err) : 0;
}

static int load_document(const struct source *s, const struct pv_config_sink *sink, struct pv_err *err)
{
        pv_auto_strv seen = { 0 };
        yaml_node_t *root = yaml_document_get_root_node(s->document);
        if (!root || (root->type == YAML_SCALAR_NODE && root->data.scalar.length == 0))
                return 0; /* empty, or nothing but comments */
        if (root->type != YAML_MAPPING_NODE)
                return fail(s, root, "fields are expected (name: value)", err);
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
        return parse(path, text, len, sink, err);
}
