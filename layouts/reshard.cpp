// Search for the cheapest way from one placement to another.
#include "layouts/reshard.h"

#include <algorithm>
#include <map>
#include <optional>
#include <queue>

#include "base/error.h"

namespace tessera::layouts {
namespace {

/// Beyond this many axes that change, the first possible step is taken instead of the cheapest.
constexpr int kMostSearchedAxes = 6;
constexpr int kPreferredHops = 2;

AxisSet bit(int axis) { return AxisSet{1} << axis; }

bool has(AxisSet axes, int axis) { return (axes & bit(axis)) != 0; }

AxisSet set_of(const AxisList& axes) {
  AxisSet result = 0;
  for (const int axis : axes) result |= bit(axis);
  return result;
}

AxisList list_of(AxisSet axes) {
  AxisList list;
  for (int axis = 0; axis < Mesh::kMaxAxes; ++axis) {
    if (has(axes, axis)) list.push_back(axis);
  }
  return list;
}

bool is_prefix(const AxisList& part, const AxisList& whole) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

Placement without_ones(const Placement& placement, const Mesh& mesh) {
  Placement result = placement;
  for (AxisList& axes : result.dims) {
    std::erase_if(axes, [&mesh](int axis) { return mesh.axis_size(axis) == 1; });
  }
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    if (mesh.axis_size(axis) == 1) result.pending &= ~bit(axis);
  }
  return result;
}

void validate(const Shape& shape, const Placement& placement, const Mesh& mesh) {
  check(placement.dims.size() == shape.rank(), "placement and shape differ in rank");
  AxisSet seen = placement.pending;
  check(seen >> mesh.axes() == 0, "placement is pending over an axis that the mesh has not");
  for (const AxisList& axes : placement.dims) {
    for (const int axis : axes) {
      check(axis >= 0 && axis < mesh.axes(), "placement names an axis that the mesh has not");
      check(!has(seen, axis), "placement names an axis twice");
      seen |= bit(axis);
    }
  }
}

/// Conversion of one tensor. Placements in here hold no axes of size 1.
///
/// Steps only ever make progress: a cut that is not where it stays is gathered or moved to its
/// place, a pending sum is reduced or scattered to its place. So the search ends, and reaches the
/// goal.
class Planner {
 public:
  Planner(const Shape& shape, std::size_t element_size, const Placement& from, const Placement& to,
          const Mesh& mesh)
      : mesh_(mesh),
        bytes_(static_cast<double>(shape.elements()) * static_cast<double>(element_size)),
        start_(without_ones(from, mesh)),
        goal_(without_ones(to, mesh)) {}

  std::vector<ReshardStep> plan() const {
    if (start_ == goal_) return {};
    if (count_changes() > kMostSearchedAxes) return first_found();
    for (int limit = kPreferredHops;; ++limit) {
      if (auto steps = search(limit)) return *std::move(steps);
    }
  }

 private:
  struct Route {
    Placement at;
    std::vector<ReshardStep> steps;
    double bytes = 0;
    int hops = 0;  // collectives
  };

  int count_changes() const {
    AxisSet changed = start_.pending ^ goal_.pending;
    for (std::size_t dim = 0; dim < start_.dims.size(); ++dim) {
      const std::size_t common = common_prefix(start_, dim);
      for (std::size_t i = common; i < start_.dims[dim].size(); ++i) {
        changed |= bit(start_.dims[dim][i]);
      }
      for (std::size_t i = common; i < goal_.dims[dim].size(); ++i) {
        changed |= bit(goal_.dims[dim][i]);
      }
    }
    return static_cast<int>(list_of(changed).size());
  }

  std::size_t common_prefix(const Placement& at, std::size_t dim) const {
    const AxisList& a = at.dims[dim];
    const AxisList& b = goal_.dims[dim];
    const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    return static_cast<std::size_t>(ends.first - a.begin());
  }

  /// Mean bytes that a rank holds: parts partition the tensor.
  double local_bytes(const Placement& at) const { return bytes_ / mesh_.group_size(at.cut_axes()); }

  static AxisSet used(const Placement& at) { return at.cut_axes() | at.pending; }

  void append(Route& route, ReshardKind kind, AxisList axes, int dim, int to_dim, double bytes,
              Placement to) const {
    ReshardStep step;
    step.kind = kind;
    step.axes = std::move(axes);
    step.dim = dim;
    step.to_dim = to_dim;
    step.from = std::move(route.at);
    step.to = to;
    step.bytes_sent = bytes;
    route.at = std::move(to);
    route.bytes += bytes;
    if (kind != ReshardKind::slice && kind != ReshardKind::owner) ++route.hops;
    route.steps.push_back(std::move(step));
  }

  /// Takes the steps that cost nothing and are never wrong: slices into final places, and owner
  /// conversion when only that is missing.
  void take_free_steps(Route& route) const {
    for (std::size_t dim = 0; dim < goal_.dims.size(); ++dim) {
      const AxisList next = next_axes(route.at, dim, ~used(route.at));
      if (next.empty()) continue;
      Placement to = route.at;
      to.dims[dim].insert(to.dims[dim].end(), next.begin(), next.end());
      append(route, ReshardKind::slice, next, static_cast<int>(dim), -1, 0, std::move(to));
    }
    const AxisSet missing = goal_.pending & ~route.at.pending;
    if (route.at.dims == goal_.dims && (route.at.pending | missing) == goal_.pending &&
        missing != 0) {
      append(route, ReshardKind::owner, list_of(missing), -1, -1, 0, goal_);
    }
  }

  /// Axes out of `choice` that the goal cuts `dim` by right after what cuts it now.
  AxisList next_axes(const Placement& at, std::size_t dim, AxisSet choice) const {
    AxisList next;
    if (!is_prefix(at.dims[dim], goal_.dims[dim])) return next;
    for (std::size_t i = at.dims[dim].size(); i < goal_.dims[dim].size(); ++i) {
      if (!has(choice, goal_.dims[dim][i])) break;
      next.push_back(goal_.dims[dim][i]);
    }
    return next;
  }

  void add_reduce_scatters(const Route& route, std::vector<Route>& next) const {
    for (std::size_t dim = 0; dim < goal_.dims.size(); ++dim) {
      AxisList axes = next_axes(route.at, dim, route.at.pending);
      for (; !axes.empty(); axes.pop_back()) {
        const double n = mesh_.group_size(set_of(axes));
        Placement to = route.at;
        to.pending &= ~set_of(axes);
        to.dims[dim].insert(to.dims[dim].end(), axes.begin(), axes.end());
        next.push_back(route);
        append(next.back(), ReshardKind::reduce_scatter, axes, static_cast<int>(dim), -1,
               (n - 1) / n * local_bytes(route.at), std::move(to));
      }
    }
  }

  void add_all_to_alls(const Route& route, std::vector<Route>& next) const {
    for (std::size_t dim = 0; dim < goal_.dims.size(); ++dim) {
      const AxisList& cuts = route.at.dims[dim];
      for (std::size_t keep = common_prefix(route.at, dim); keep < cuts.size(); ++keep) {
        const AxisList moved(cuts.begin() + static_cast<std::ptrdiff_t>(keep), cuts.end());
        for (std::size_t other = 0; other < goal_.dims.size(); ++other) {
          Placement to = route.at;
          to.dims[dim].resize(keep);
          to.dims[other].insert(to.dims[other].end(), moved.begin(), moved.end());
          if (other == dim || !is_prefix(to.dims[other], goal_.dims[other])) continue;
          const double n = mesh_.group_size(set_of(moved));
          next.push_back(route);
          append(next.back(), ReshardKind::all_to_all, moved, static_cast<int>(dim),
                 static_cast<int>(other), (n - 1) / n * local_bytes(route.at), std::move(to));
        }
      }
    }
  }

  void add_all_reduces(const Route& route, std::vector<Route>& next) const {
    const AxisSet reducible = route.at.pending & ~goal_.pending;
    // All subsets, the whole first.
    for (AxisSet axes = reducible; axes != 0; axes = (axes - 1) & reducible) {
      const double n = mesh_.group_size(axes);
      Placement to = route.at;
      to.pending &= ~axes;
      next.push_back(route);
      append(next.back(), ReshardKind::all_reduce, list_of(axes), -1, -1,
             2 * (n - 1) / n * local_bytes(route.at), std::move(to));
    }
  }

  void add_all_gathers(const Route& route, std::vector<Route>& next) const {
    for (std::size_t dim = 0; dim < goal_.dims.size(); ++dim) {
      const AxisList& cuts = route.at.dims[dim];
      for (std::size_t keep = common_prefix(route.at, dim); keep < cuts.size(); ++keep) {
        const AxisList gathered(cuts.begin() + static_cast<std::ptrdiff_t>(keep), cuts.end());
        const double n = mesh_.group_size(set_of(gathered));
        Placement to = route.at;
        to.dims[dim].resize(keep);
        next.push_back(route);
        append(next.back(), ReshardKind::all_gather, gathered, static_cast<int>(dim), -1,
               (n - 1) * local_bytes(route.at), std::move(to));
      }
    }
  }

  /// All ways to go on by one collective, the most desirable kinds first.
  std::vector<Route> continuations(const Route& route) const {
    std::vector<Route> next;
    add_reduce_scatters(route, next);
    add_all_to_alls(route, next);
    add_all_reduces(route, next);
    add_all_gathers(route, next);
    for (Route& longer : next) take_free_steps(longer);
    return next;
  }

  /// Bytes, with a trace of hops and steps so that equal bytes prefer fewer of them.
  double cost(const Route& route) const {
    const double scale = bytes_ + 1;
    return route.bytes + 1e-6 * scale * route.hops +
           1e-9 * scale * static_cast<double>(route.steps.size());
  }

  /// Dijkstra over (placement, hops).
  std::optional<std::vector<ReshardStep>> search(int hop_limit) const {
    std::vector<Route> routes;
    using Entry = std::pair<double, std::size_t>;  // cost, index; equal costs in order of discovery
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    std::map<std::vector<int>, double> best;
    const auto offer = [&](Route route) {
      std::vector<int> key{route.hops, static_cast<int>(route.at.pending)};
      for (const AxisList& axes : route.at.dims) {
        key.push_back(-1);
        key.insert(key.end(), axes.begin(), axes.end());
      }
      const double price = cost(route);
      const auto [known, is_new] = best.emplace(std::move(key), price);
      if (!is_new && known->second <= price) return;
      known->second = price;
      queue.emplace(price, routes.size());
      routes.push_back(std::move(route));
    };
    Route start{start_, {}, 0, 0};
    take_free_steps(start);
    offer(std::move(start));
    while (!queue.empty()) {
      const std::size_t index = queue.top().second;
      queue.pop();
      if (routes[index].at == goal_) return routes[index].steps;
      if (routes[index].hops == hop_limit) continue;
      for (Route& next : continuations(routes[index])) offer(std::move(next));
    }
    return std::nullopt;
  }

  std::vector<ReshardStep> first_found() const {
    Route route{start_, {}, 0, 0};
    take_free_steps(route);
    while (route.at != goal_) route = continuations(route).front();
    return route.steps;
  }

  const Mesh& mesh_;
  double bytes_;
  Placement start_;
  Placement goal_;
};

}  // namespace

std::vector<ReshardStep> plan_reshard(const Shape& shape, std::size_t element_size,
                                      const Placement& from, const Placement& to,
                                      const Mesh& mesh) {
  validate(shape, from, mesh);
  validate(shape, to, mesh);
  if (from == to) return {};
  std::vector<ReshardStep> steps = Planner(shape, element_size, from, to, mesh).plan();
  if (!steps.empty()) {
    steps.front().from = from;
    steps.back().to = to;
  }
  return steps;
}

double reshard_bytes(const Shape& shape, std::size_t element_size, const Placement& from,
                     const Placement& to, const Mesh& mesh) {
  double bytes = 0;
  for (const ReshardStep& step : plan_reshard(shape, element_size, from, to, mesh)) {
    bytes += step.bytes_sent;
  }
  return bytes;
}

bool same_placement(const Placement& a, const Placement& b, const Mesh& mesh) {
  return a == b || without_ones(a, mesh) == without_ones(b, mesh);
}

}  // namespace tessera::layouts
