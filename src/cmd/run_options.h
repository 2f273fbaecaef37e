/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `run`, on struct pv_request. */
#ifndef PV_CMD_RUN_OPTIONS_H
#define PV_CMD_RUN_OPTIONS_H

#include "cmd/opt.h"
#include "policy/request.h"

extern const struct pv_opt pv_run_options[];

/*
 * Fills the request from a configuration file: path, or the person's own default one when that is NULL. Lists add up
 * with those of the command line, which is applied afterwards and wins. PV_ERR_USAGE with file and line.
 */
int pv_run_load_config(const char *path, struct pv_request *request, struct pv_err *err);

#endif
