// Reads goldens.h5, the values that reference.py and frontend.py computed in float64. make_goldens.py writes it again.
//
// Parameters have the logical paths of the C++ models. Every case with parameters holds
//   parameters/<path>      weights, and the buffers of a frozen batch norm (conv_norm.mean, conv_norm.variance)
//   gradients/<path>       dL/dparameter; gradients/input
//   input [rows, width]    packed sequences, of `lengths` rows each
// and its configuration as attributes of the group. The cases:
//   conformer_relative     encoder.layers.0 with relative positions (offset i - j encoded as interleaved sine and cosine of
//                          base 10000, biases u and v), layer norm in the convolution
//   conformer_rotary       the same with rotary positions and no attention biases
//   conformer_batch_norm   as conformer_relative with a frozen batch norm
//   subsampling_dw_striding, subsampling_conv1d    encoder.subsampling; also `output_lengths`
//   decoder_layer          llm.layers.0, causal
//     L = sum(cotangent * output); datasets `output`, `cotangent`
//   salm_small             encoder, CTC head, compressor with posteriors, projection and its norm, decoder. Rows of a sample:
//                          audio, BOS, text; text positions restart at 0. `text`, `text_lengths`; results to look at:
//                          `audio_lengths` (after the compressor), `positions`, `labels`, `ctc_sum`, `ctc_count`, `ce_sum`,
//                          `label_count`; L = `loss` = ctc_weight * ctc_sum / ctc_count + llm_weight * ce_sum / label_count
//   salm_nemo              encoder, projection, decoder. `ids` with `ids_lengths`: prompt and answer of each sample, one audio
//                          in the place of each id `audio_token`, in order; `loss_mask` is 1 on the answer. Results:
//                          `rows`, `positions`, `labels` (already shifted), `ce_sum`, `label_count`, `loss`
//   salm_nemo_multi        the same parameters; samples with no, one and two audios; gradients of input and projection.weight
//   frontend/nemo_0, nemo_1    `waveform` at 16 kHz, `log_mel` [frames, 128], `normalised`
//   frontend/small         `waveform` at 8 kHz, `log_mel` [frames, 80]
#pragma once
#include <chorus/core/error.h>
#include <hdf5.h>

#include <string>
#include <vector>

namespace chorus::testing {

struct Golden {
  std::vector<std::int64_t> shape;
  std::vector<double> values;
};

/// The file that the tests were built beside. Errors name the path of what is missing.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& file = CHORUS_GOLDENS) : file_(H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT)) {
    require(file_ >= 0, "GoldenFile", "cannot open ", file);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // the errors below say what is missing
  }
  ~GoldenFile() { H5Fclose(file_); }
  GoldenFile(const GoldenFile&) = delete;
  GoldenFile& operator=(const GoldenFile&) = delete;

  /// A dataset of any numeric type.
  Golden read(const std::string& path) const {
    const hid_t data = H5Dopen2(file_, path.c_str(), H5P_DEFAULT);
    require(data >= 0, "GoldenFile", "no dataset ", path);
    const hid_t space = H5Dget_space(data);
    std::vector<hsize_t> dims(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space)));
    H5Sget_simple_extent_dims(space, dims.data(), nullptr);
    Golden golden{{dims.begin(), dims.end()},
                  std::vector<double>(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)))};
    const herr_t status = H5Dread(data, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, golden.values.data());
    H5Sclose(space);
    H5Dclose(data);
    require(status >= 0, "GoldenFile", "cannot read ", path);
    return golden;
  }
  std::vector<double> values(const std::string& path) const { return read(path).values; }
  template <class T>
  std::vector<T> as(const std::string& path) const {
    const auto all = values(path);
    std::vector<T> out;
    for (const double v : all) out.push_back(static_cast<T>(v));
    return out;
  }
  double scalar(const std::string& path) const {
    const Golden golden = read(path);
    require(golden.values.size() == 1, "GoldenFile", path, " has ", golden.values.size(), " values");
    return golden.values[0];
  }

  /// A number among the attributes of a group.
  double attribute(const std::string& group, const std::string& name) const {
    require(H5Aexists_by_name(file_, group.c_str(), name.c_str(), H5P_DEFAULT) > 0, "GoldenFile", "no attribute ", name, " of ",
            group);
    const hid_t attribute = H5Aopen_by_name(file_, group.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT);
    double value = 0;
    const herr_t status = H5Aread(attribute, H5T_NATIVE_DOUBLE, &value);
    H5Aclose(attribute);
    require(status >= 0, "GoldenFile", "attribute ", name, " of ", group, " is no number");
    return value;
  }

  /// Names in a group, in alphabetical order.
  std::vector<std::string> names(const std::string& group) const {
    const hid_t id = H5Gopen2(file_, group.c_str(), H5P_DEFAULT);
    require(id >= 0, "GoldenFile", "no group ", group);
    std::vector<std::string> found;
    hsize_t next = 0;
    H5Literate(
        id, H5_INDEX_NAME, H5_ITER_INC, &next,
        [](hid_t, const char* name, const H5L_info_t*, void* out) -> herr_t {
          static_cast<std::vector<std::string>*>(out)->emplace_back(name);
          return 0;
        },
        &found);
    H5Gclose(id);
    return found;
  }

 private:
  hid_t file_;
};

}  // namespace chorus::testing
