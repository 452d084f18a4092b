// Tessera as a library: the names of keras.distribution and of Keras's model methods.
#pragma once

#include "api/distribution.h"
#include "api/layers.h"
#include "api/model.h"
#include "api/tensor.h"
