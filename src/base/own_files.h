/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rights over one's own files, whatever their modes say. An agent leaves files and directories that their owner may
 * not read or enter; root is not hindered by modes, an ordinary user is. In a user namespace with one's own ids mapped
 * to themselves (user_namespaces(7)) an ordinary user has CAP_DAC_OVERRIDE over what has these ids, and over nothing
 * else; so no mode needs to be changed, and given back, to look at or move one's own files. Attributes that name other
 * ids are read and written through base/outer_ids.h from then on.
 */
#ifndef PV_BASE_OWN_FILES_H
#define PV_BASE_OWN_FILES_H

/*
 * Moves the calling process, for good, into such a namespace, unless it is root or no namespace can be had here: then
 * modes go on to hinder it. Must: single-threaded. Mustn't: a process that is yet to start a run.
 */
void pv_own_files_open(void);

#endif
