// The caches of the loop: of objects, pods and agents.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "controller/loop/cached_object.h"
#include "controller/loop/pods_of_job.h"

namespace lockstep::loop {
namespace {

plan::PodView pod(const std::string& name, int64_t incarnation = 1) {
  plan::PodView view;
  view.name = name;
  view.incarnation = incarnation;
  return view;
}

TEST(PodsOfJob, AreFoundWhicheverWasErased) {
  for (const std::string gone : {"a", "b", "c"}) {
    PodsOfJob pods;
    for (const char* name : {"a", "b", "c"}) pods.put(name, pod(name));
    pods.erase(gone);
    pods.erase("no such pod");
    for (const std::string name : {"a", "b", "c"}) {
      const plan::PodView* found = pods.find(name);
      ASSERT_EQ(found != nullptr, name != gone) << name << " without " << gone;
      EXPECT_EQ(found == nullptr ? name : found->name, name);
    }
    pods.put(gone, pod(gone, 2));
    EXPECT_EQ(pods.find(gone)->incarnation, 2);
  }
}

TEST(PodsOfJob, AreReplacedAndEmptyAfterTheLast) {
  PodsOfJob pods;
  pods.put("a", pod("a"));
  pods.put("a", pod("a", 2));
  EXPECT_EQ(pods.find("a")->incarnation, 2);
  pods.erase("a");
  EXPECT_TRUE(pods.empty());
}

TEST(PodsOfJob, AreLentAndComeBack) {
  PodsOfJob pods;
  for (const char* name : {"a", "b"}) pods.put(name, pod(name));
  std::vector<plan::PodView> views;
  pods.swap_views(views);
  ASSERT_EQ(views.size(), 2u);
  EXPECT_EQ(views[1].name, "b");
  pods.swap_views(views);
  EXPECT_TRUE(views.empty());
  EXPECT_EQ(pods.find("b")->name, "b");
}

TEST(CachedObject, IsTheSamePackedOrNot) {
  const SharedJson object(Json{{"metadata", {{"uid", "u"}, {"resourceVersion", "7"}}},
                               {"spec", {{"list", {1, 2.5, nullptr, "text"}}}}});
  for (const bool packs : {false, true}) {
    const CachedObject cached(object, packs);
    EXPECT_EQ(cached.uid(), "u");
    EXPECT_EQ(cached.version(), "7");
    const CachedObject copy = cached;
    EXPECT_EQ(*copy.json(), *object) << packs;
  }
  EXPECT_TRUE((*CachedObject().json()).is_null());
}

}  // namespace
}  // namespace lockstep::loop
