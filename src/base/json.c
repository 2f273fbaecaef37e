/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <string.h>
#include "base/str.h"

json_t *pv_json_bytes(const char *s)
{
        if (!s)
                return json_null();
        json_t *j = json_string(s); /* NULL when it is not UTF-8 */
        if (j)
                return j;
        size_t n = strlen(s);
        pv_auto_free char *hex = pv_calloc(2 * n + 1, 1);
        pv_hex(s, n, hex);
        return json_pack("{s:s}", "bytes", hex);
}

static int nibble(char c)
{
        return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int pv_json_get_bytes(const json_t *value, char **out, struct pv_err *err)
{
        if (json_is_string(value)) {
                if (strlen(json_string_value(value)) != json_string_length(value))
                        return pv_err_set(err, PV_ERR_INPUT, 0, "a string with a NUL in it");
                *out = pv_strdup(json_string_value(value));
                return 0;
        }
        const char *hex = json_string_value(json_object_get(value, "bytes"));
        size_t n = hex ? strlen(hex) : 1;
        if (n % 2)
                return pv_err_set(err, PV_ERR_INPUT, 0, "neither a string nor bytes in hexadecimal");
        pv_auto_free char *s = pv_calloc(n / 2 + 1, 1);
        for (size_t i = 0; i < n / 2; i++) {
                int hi = nibble(hex[2 * i]), lo = nibble(hex[2 * i + 1]);
                if (hi < 0 || lo < 0 || hi + lo == 0)
                        return pv_err_set(err, PV_ERR_INPUT, 0, "bytes that are not hexadecimal, or a NUL");
                s[i] = (char)(hi << 4 | lo);
        }
        *out = pv_steal(&s);
        return 0;
}

int pv_json_get_str(const json_t *object, const char *key, const char **out, struct pv_err *err)
{
        const json_t *v = json_object_get(object, key);
        if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
                return pv_err_set(err, PV_ERR_INPUT, 0, "\"%s\" is missing or not a string", key);
        *out = json_string_value(v);
        return 0;
}

int pv_json_get_int(const json_t *object, const char *key, int64_t least, int64_t most, int64_t *out,
                    struct pv_err *err)
{
        const json_t *v = json_object_get(object, key);
        if (!json_is_integer(v) || json_integer_value(v) < least || json_integer_value(v) > most)
                return pv_err_set(err, PV_ERR_INPUT, 0, "\"%s\" is missing or not a number in range", key);
        *out = json_integer_value(v);
        return 0;
}

int pv_json_get_array(const json_t *object, const char *key, size_t most, json_t **out, struct pv_err *err)
{
        json_t *v = json_object_get(object, key);
        if (!json_is_array(v) || json_array_size(v) > most)
                return pv_err_set(err, PV_ERR_INPUT, 0, "\"%s\" is missing, not a list, or too long", key);
        *out = v;
        return 0;
}

int pv_json_read_at(int dirfd, const char *name, size_t max, json_t **out, struct pv_err *err)
{
        pv_auto_free char *text = NULL;
        size_t len = 0;
        json_error_t why;
        if (pv_file_read_at(dirfd, name, max, &text, &len, err) < 0)
                return -1;
        json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
        if (!j)
                return pv_err_set(err, PV_ERR_INPUT, 0, "%s:%d: %s", name, why.line, why.text);
        *out = j;
        return 0;
}

int pv_json_write_at(int dirfd, const char *name, const json_t *value, enum pv_file_flags flags, struct pv_err *err)
{
        pv_auto_free char *text = json_dumps(value, JSON_INDENT(2));
        if (!text)
                return pv_err_set(err, PV_ERR_SYS, ENOMEM, "write %s", name);
        size_t n = strlen(text);
        text[n] = '\n'; /* the NUL's place; the length is passed on */
        return pv_file_write_at(dirfd, name, text, n + 1, 0600, flags, err);
}
