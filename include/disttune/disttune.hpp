// Everything that a program needs, except devices and groups of its own choice
// (disttune/cuda.hpp, hip.hpp, opencl.hpp, ascend.hpp, mpi.hpp).
#pragma once

#include "disttune/config.hpp"
#include "disttune/contextual.hpp"
#include "disttune/device.hpp"
#include "disttune/error.hpp"
#include "disttune/function.hpp"
#include "disttune/group.hpp"
#include "disttune/measure.hpp"
#include "disttune/observer.hpp"
#include "disttune/record.hpp"
#include "disttune/selector.hpp"
#include "disttune/trace.hpp"
#include "disttune/unify.hpp"
#include "disttune/value.hpp"
#include "disttune/version.hpp"
