#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "controller/plan/pod_view.h"

namespace lockstep::loop {

// The pods that one job owns, by the key of their objects. Keeps their views side by side, as a
// plan wants them, and changes one without touching the others. Single-threaded.
class PodsOfJob {
 public:
  PodsOfJob() = default;
  PodsOfJob(const PodsOfJob&) = delete;
  PodsOfJob& operator=(const PodsOfJob&) = delete;

  // Returns nullptr if there is none. Valid until the next change.
  const plan::PodView* find(const std::string& key) const {
    const auto place = places_.find(key);
    return place == places_.end() ? nullptr : &views_[place->second];
  }

  void put(const std::string& key, plan::PodView view) {
    const auto [place, is_new] = places_.try_emplace(key, views_.size());
    if (!is_new) {
      views_[place->second] = std::move(view);
      return;
    }
    views_.push_back(std::move(view));
    keys_.push_back(&place->first);
  }

  // The last one takes its place.
  void erase(const std::string& key) {
    const auto place = places_.find(key);
    if (place == places_.end()) return;
    const size_t index = place->second;
    if (index + 1 < views_.size()) {
      views_[index] = std::move(views_.back());
      keys_[index] = keys_.back();
      places_.at(*keys_[index]) = index;
    }
    views_.pop_back();
    keys_.pop_back();
    places_.erase(place);
  }

  bool empty() const { return views_.empty(); }
  // Exchanges the views with those of a plan, without a copy. Called a second time, before any
  // other call, it takes them back.
  void swap_views(std::vector<plan::PodView>& views) { views_.swap(views); }

 private:
  std::vector<plan::PodView> views_;
  std::vector<const std::string*> keys_;  // of the views; they live in places_
  std::map<std::string, size_t> places_;
};

}  // namespace lockstep::loop
