/*
 * AsyncGetStackTrace as it was until the end of 2022, when a trace had no kind: for clients that were written for that state
 * of the proposal, such as the branch parttimenerd_asgst of a fork of async-profiler. All else is as in
 * ../jep435/profile.h, and both are served by the same function.
 * C11 and C++11.
 */
#ifndef JVM_PROFILE_JEP435_2022_H
#define JVM_PROFILE_JEP435_2022_H

#define ASGST_CALL_TRACE_WITHOUT_KIND
#include "../jep435/profile.h"

#endif
