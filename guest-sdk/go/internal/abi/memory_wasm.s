#include "textflag.h"

// The linker lets only the standard library name this, unless it is told `-checklinkname=0`, as `quarry build` does.
TEXT ·sbrk(SB), NOSPLIT, $0-16
	JMP runtime·sbrk(SB)

TEXT ·trap(SB), NOSPLIT, $0-0
	UNDEF
