/* User Mode Linux 6.1 keeps XSTATE in a buffer that is too small for a processor with AMX.
 * Preloaded, this has it use the registers of the FPU and of SSE alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/ptrace.h>

long ptrace(enum __ptrace_request request, ...)
{
	static long (*next)(enum __ptrace_request, long, void *, void *);
	va_list list;
	long pid;
	void *addr, *data;

	va_start(list, request);
	pid = va_arg(list, long);
	addr = va_arg(list, void *);
	data = va_arg(list, void *);
	va_end(list);
	if (!next)
		next = dlsym(RTLD_NEXT, "ptrace");
	if ((request == PTRACE_GETREGSET || request == PTRACE_SETREGSET) && (long)addr == NT_X86_XSTATE) {
		errno = EINVAL;
		return -1;
	}
	return next(request, pid, addr, data);
}
