// Files live in core, where the trace can use them too.
#pragma once
#include <chorus/core/posix_file.h>
